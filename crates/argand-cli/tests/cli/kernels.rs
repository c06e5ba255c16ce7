//! Kernels other than the polynomial one, and methods that look at rows.

use argand::{Kernel, Polynomial, Spec};

use crate::support::*;

/// What is written is what the library computes from the saved spec, which is fitted; reading it again gives the same file.
#[test]
fn methods_of_all_kernels_are_fitted_saved_and_used_again() {
    let table = Table::new(200, 3);
    let workspace = Workspace::new();
    for input in ["x.npy", "x.csv", "x.libsvm"] {
        workspace.write(input, table.file(input));
        for (flags, kernel, method, features) in [
            (
                "--kernel gaussian --length-scale 2.5",
                Kernel::Gaussian { length_scale: 2.5 },
                "maclaurin-ctr-product-srht",
                24,
            ),
            ("--kernel gaussian --gamma 0.5 --method orf", Kernel::Gaussian { length_scale: 1.0 }, "orf", 24),
            ("--kernel gaussian --length-scale 2 --method sorf", Kernel::Gaussian { length_scale: 2.0 }, "sorf", 24),
            (
                "--kernel exponential --length-scale 3 --method nystrom --landmarks leverage",
                Kernel::Exponential { length_scale: 3.0 },
                "nystrom",
                10,
            ),
            (
                "--kernel series --coefficients 1,0.5,0,0.25",
                Kernel::Series { coefficients: vec![1.0, 0.5, 0.0, 0.25] },
                "maclaurin-ctr-product-srht",
                24,
            ),
            (
                "--degree 4 --coef0 1 --method maclaurin-ctr-gaussian",
                Polynomial { degree: 4, gamma: 1.0, coef0: 1.0 }.into(),
                "maclaurin-ctr-gaussian",
                24,
            ),
        ] {
            let described =
                format!("transform {input} -o z.npy {flags} --features {features} --seed 3 --save-spec s.json");
            workspace.succeed(&described);
            let spec = Spec::from_json(&String::from_utf8(workspace.read("s.json")).unwrap()).unwrap();
            assert_eq!((&spec.kernel, spec.method.to_string().as_str(), spec.features), (&kernel, method, features));
            let written = workspace.read("z.npy");
            // Sparse rows are not centred: there, the spec says so.
            let features_of = bits(&parse_npy(&written, "<f4", 200, features));
            if input != "x.libsvm" {
                assert_eq!(features_of, bits(&table.features(&spec)), "{flags} {input}");
            }
            workspace.succeed(&format!("transform {input} -o again.npy --spec s.json"));
            assert_eq!(workspace.read("again.npy"), written, "{flags} {input}");
            let said = workspace.succeed("info s.json").stdout;
            assert!(said.contains(&kernel.to_string()) && said.contains(method), "{said}");
        }
    }
    // The number of monomials need not be given.
    workspace.succeed("transform x.npy -o z.npy --method exact --degree 3 --save-spec s.json");
    let spec = Spec::from_json(&String::from_utf8(workspace.read("s.json")).unwrap()).unwrap();
    assert_eq!(spec.features, 10);
    assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), "<f4", 200, 10)), bits(&table.features(&spec)));
}

/// x y > 0 is no matter of x or y alone: a Gaussian kernel sees it, on scaled rows.
#[test]
fn models_learn_with_methods_that_look_at_rows() {
    let workspace = Workspace::new();
    let point = |index: usize| [(index * 37 % 101) as f64 / 50.0 - 1.0, (index * 53 % 97) as f64 / 48.0 - 1.0];
    let row = |index: usize| {
        let [x, y] = point(index);
        format!("{},{},{}\n", 100.0 + 20.0 * x, y, if x * y > 0.0 { "same" } else { "other" })
    };
    workspace.write("train.csv", "x,y,sign\n".to_owned() + &(0..600).map(row).collect::<String>());
    workspace.write("test.csv", "x,y,sign\n".to_owned() + &(600..900).map(row).collect::<String>());
    for method in ["maclaurin-ctr-product-srht --features 64", "nystrom --features 40", "sorf --features 128"] {
        let options = "--labels sign --kernel gaussian --length-scale 0.5 --scaling standard";
        workspace
            .succeed(&format!("fit train.csv -o m.model --model ridge {options} --method {method} --validation 0.2"));
        let said = workspace.succeed("evaluate m.model test.csv --labels sign").stdout;
        let error =
            said.lines().find_map(|line| line.strip_prefix("error")).and_then(|rest| rest.split_whitespace().next());
        let error: f64 = error.unwrap_or_else(|| panic!("{said}")).trim_end_matches('%').parse().unwrap();
        assert!(error < 0.1, "{method}: {said}");
        workspace.succeed("predict m.model test.csv -o p.csv");
        assert!(workspace.succeed("info m.model").stdout.contains("exp(-|x-y|^2 / (2 * 0.5^2))"));
    }
}

#[test]
fn plans_say_what_to_do() {
    let (table, workspace) = (Table::new(60, 3), Workspace::new());
    workspace.write("x.npy", table.file("x.npy"));
    let plan = "plan x.npy --kernel gaussian --length-scale 2.5 --method sorf";
    let late = workspace.run(&format!("{plan} --time-budget 1e-9"));
    assert!(late.code == Some(2) && late.stderr.contains("no method keeps within 0.000000001 s"), "{late:?}");
    workspace.refuse(&format!("{plan} --features 16 --save-spec one --plot one"), &["--plot: expected another file"]);
    // As many features as there are monomials, whatever --features is by default.
    workspace.succeed("verify x.npy --degree 2 --coef0 1 --method exact --sketches 100");
}

/// Without --method, those of the kernel at hand.
#[test]
fn methods_of_all_kernels_are_verified() {
    let (table, workspace) = (Table::new(40, 3), Workspace::new());
    workspace.write("x.npy", table.file("x.npy"));
    for (kernel, method) in [
        ("--degree 2", "tensor-sketch"),
        ("--kernel gaussian --length-scale 2.5", "rff"),
        ("--kernel exponential --length-scale 3", "maclaurin-ctr-product-srht"),
        ("--kernel series --coefficients 1,0.5,0,0.25", "maclaurin-rademacher"),
    ] {
        let said = workspace.succeed(&format!("verify x.npy {kernel} --features 24 --sketches 300")).stdout;
        assert!(said.contains(method) && !said.contains("DISAGREES"), "{kernel}: {said}");
    }
}

#[test]
fn kernels_that_are_none_are_refused() {
    let workspace = Workspace::with_table();
    for (flags, words) in [
        ("--kernel gaussian", &["--length-scale: expected"][..]),
        ("--kernel gaussian --length-scale 0", &["--length-scale: expected a number from 1e-100", "got 0"]),
        ("--kernel gaussian --length-scale -1", &["--length-scale"]),
        ("--kernel gaussian --gamma 0", &["--gamma: expected a number from 1e-200 to 1e199, got 0"]),
        ("--kernel gaussian --gamma -1", &["--gamma: expected", "got -1"]),
        ("--kernel gaussian --gamma 1 --length-scale 1", &["--gamma"]),
        ("--kernel gaussian --length-scale 1 --degree 3", &["--degree"]),
        ("--kernel exponential --length-scale 1 --gamma 3", &["--gamma"]),
        ("--length-scale 1", &["--length-scale"]),
        ("--kernel series", &["--coefficients: expected 1 to 65 numbers"]),
        ("--kernel series --coefficients 1,-2", &["--coefficients", "-2 for the power 1"]),
        ("--kernel series --coefficients 0,0", &["--coefficients"]),
        ("--kernel gaussian --length-scale 1 --method ctr-gaussian", &["--method: expected maclaurin-", "rff"]),
        ("--kernel gaussian --length-scale 1 --method sorf --features 7", &["--features", "even"]),
        ("--kernel gaussian --length-scale 0.001", &["IN: expected rows", "length_scale", "orf"]),
        ("--method rff", &["--method"]),
        ("--method exact --features 9", &["--features: expected 6"]),
        ("--method nystrom --features 7", &["--features: expected at most the 6"]),
        ("--method nystrom --landmarks best", &["--landmarks", "pivoted"]),
        ("--kernel sine", &["--kernel"]),
    ] {
        workspace.refuse(&format!("transform x.npy -o out.npy {flags}"), words);
    }
    workspace.refuse("transform x.npy -o out.npy --method maclaurin-gaussian --aim high", &["--aim", "learning"]);
    workspace.write("y.npy", Table::new(6, 2).npy());
    workspace.refuse("transform x.npy y.npy -o out.npy --kernel gaussian --length-scale 1", &["IN: expected one file"]);
}
