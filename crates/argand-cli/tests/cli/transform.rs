//! What the commands compute and print.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use argand::{FeatureMap, Method, Spec};

use crate::support::*;

#[test]
fn every_format_gives_the_features_of_the_library() {
    let table = Table::new(200, 3);
    let products = Method::products().into_iter().map(Method::Product);
    for mut method in products.chain([Method::Spherical]) {
        method = method.with_craft_dim(32);
        let mut spec = Spec::polynomial(3).with_degree(3).with_features(10).with_method(method).with_seed(7);
        spec = spec.with_gamma(0.5).with_coef0(0.5);
        let expected = bits(&table.features(&spec));
        let workspace = Workspace::new();
        for input in INPUTS {
            workspace.write(input, table.file(input));
            let flags = "--degree 3 --features 10 --gamma 0.5 --coef0 0.5 --seed 7";
            let craft = if method.craft().is_some() { "--craft-dim 32" } else { "" };
            workspace.succeed(&format!("transform {input} -o z.npy --method {method} {craft} {flags}"));
            let (dtype, columns) = if method.field() == argand::Field::Complex { ("<c8", 5) } else { ("<f4", 10) };
            assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), dtype, 200, columns)), expected, "{method} {input}");
        }
    }
}

#[test]
fn every_input_goes_to_every_output() {
    let table = Table::new(200, 3);
    let workspace = Workspace::new();
    let expected = bits(&table.features(&Spec::polynomial(3).with_degree(2).with_features(10)));
    for input in INPUTS {
        workspace.write(input, table.file(input));
        for output in OUTPUTS {
            workspace.succeed(&format!("transform {input} -o {output} --features 10"));
        }
        assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), "<f4", 200, 10)), expected, "{input}");
        assert_eq!(bits(&parse_csv(&workspace.read("z.csv"), 10)), expected, "{input}");
        assert_eq!(bits(&parse_parquet(&workspace.path("z.parquet"), 10)), expected, "{input}");
    }
    // The output can be read back.
    for input in OUTPUTS {
        workspace.succeed(&format!("transform {input} -o again.npy --features 4"));
        workspace.succeed(&format!("transform {input} -o again-{input} --features 4"));
        assert_eq!(parse_npy(&workspace.read("again.npy"), "<f4", 200, 4).len(), 800);
    }
    assert_eq!(
        bits(&parse_csv(&workspace.read("again-z.csv"), 4)),
        bits(&parse_parquet(&workspace.path("again-z.parquet"), 4))
    );
}

#[test]
fn the_fixture_agrees_to_the_last_digit() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../argand/tests/fixture");
    let workspace = Workspace::new();
    for name in ["x.csv", "spec.json"] {
        fs::copy(fixture.join(name), workspace.path(name)).unwrap();
    }
    workspace.succeed("transform x.csv -o z.csv --spec spec.json --dtype f64 --save-spec saved.json");
    let expected = fs::read_to_string(fixture.join("features.csv")).unwrap();
    assert_eq!(String::from_utf8(workspace.read("z.csv")).unwrap(), expected);
    assert_eq!(workspace.read("saved.json"), workspace.read("spec.json"));
    let flags = "--degree 3 --features 16 --gamma 0.5 --coef0 1 --seed 42 --method ctr-product-srht --dtype f64";
    workspace.succeed(&format!("transform x.csv -o same.csv {flags}"));
    assert_eq!(workspace.read("same.csv"), workspace.read("z.csv"));
}

#[test]
fn several_inputs_are_factors() {
    let tables = [Table::new(50, 3), Table::new(50, 1), Table::new(50, 6)];
    let workspace = Workspace::new();
    for (name, table) in ["a.csv", "b.npy", "c.libsvm"].iter().zip(&tables) {
        workspace.write(name, table.file(name));
    }
    let singles = tables.each_ref().map(Table::singles);
    let views: Vec<_> = tables.iter().zip(&singles).map(|(table, singles)| table.view(singles)).collect();
    let spec = Spec::tensor_product(&[3, 1, 6]).with_features(8).with_seed(5);
    let expected: Vec<f32> = spec.sketch().unwrap().transform(&views).unwrap();
    workspace.succeed("transform a.csv b.npy c.libsvm -o z.npy --features 8 --seed 5 --save-spec s.json");
    assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), "<f4", 50, 8)), bits(&expected));
    workspace.succeed("transform a.csv b.npy c.libsvm -o same.npy --spec s.json");
    assert_eq!(workspace.read("same.npy"), workspace.read("z.npy"));
    // The order matters, and the same table twice is two factors.
    workspace.refuse("transform b.npy a.csv c.libsvm -o out.npy --spec s.json", &["b.npy: has 1 columns", "for 3"]);
    workspace.succeed("transform b.npy b.npy -o twice.npy --features 8 --degree 2");
}

#[test]
fn threads_change_nothing() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(3000, 5).npy());
    for output in OUTPUTS {
        let files = [1, 2, 3].map(|threads| {
            workspace.succeed(&format!("transform x.npy -o {output} --features 64 --coef0 1 --threads {threads}"));
            workspace.read(output)
        });
        assert!(files[0] == files[1] && files[0] == files[2], "{output}");
    }
}

#[test]
fn complex_features_are_pairs() {
    let workspace = Workspace::with_table();
    for (dtype, complex, real) in [("f32", "<c8", "<f4"), ("f64", "<c16", "<f8")] {
        let flags = format!("--features 8 --dtype {dtype} --method");
        workspace.succeed(&format!("transform x.npy -o z.npy {flags} complex-product-srht"));
        workspace.succeed(&format!("transform x.npy -o real.npy {flags} ctr-product-srht"));
        let (pairs, parts) = (workspace.read("z.npy"), workspace.read("real.npy"));
        assert_eq!((&pairs[..128], &parts[..128]), (&npy(complex, 6, 4, &[])[..], &npy(real, 6, 8, &[])[..]));
        // The same numbers in another order: real parts first.
        let size = if dtype == "f32" { 4 } else { 8 };
        for (pairs, parts) in pairs[128..].chunks(8 * size).zip(parts[128..].chunks(8 * size)) {
            let number = |bytes: &[u8], index: usize| bytes[index * size..][..size].to_vec();
            for index in 0..4 {
                assert_eq!(number(pairs, 2 * index), number(parts, index));
                assert_eq!(number(pairs, 2 * index + 1), number(parts, 4 + index));
            }
        }
    }
    workspace.succeed("transform x.npy -o z.csv --features 4 --method complex-gaussian");
    assert!(workspace.read("z.csv").starts_with(b"z0_re,z0_im,z1_re,z1_im\n"));
}

#[test]
fn awkward_but_right() {
    let workspace = Workspace::new();
    workspace.write("one.csv", "2.5\n");
    workspace.write("names.csv", "\u{feff}\"a, b\",c\r\n\"1\", 2 \r\n-3e-1,.5\r\n\r\n");
    workspace.write("wide.csv", Table::new(1, 100_000).csv());
    workspace.write("tiny.csv", "1e-300,0\n5e-324,1e-45\n");
    workspace.write("bytes.npy", npy("|u1", 2, 2, &[1, 2, 3, 255]));
    for (input, rows) in [("one.csv", 1), ("names.csv", 2), ("wide.csv", 1), ("tiny.csv", 2), ("bytes.npy", 2)] {
        workspace.succeed(&format!("transform {input} -o z.npy --features 2 --degree 1"));
        assert_eq!(parse_npy(&workspace.read("z.npy"), "<f4", rows, 2).len(), 2 * rows, "{input}");
    }
    // γ = ν = 0: the kernel is zero, and so are the features.
    workspace.succeed("transform one.csv -o z.npy --features 2 --gamma 0");
    assert_eq!(parse_npy(&workspace.read("z.npy"), "<f4", 1, 2), [0.0, 0.0]);
    // Any name works.
    let name = "ünï \"çødé\" 数.csv";
    fs::copy(workspace.path("one.csv"), workspace.path(name)).unwrap();
    let status = workspace.command("transform -q --features 2 -o 出.csv").arg(name).status().unwrap();
    assert!(status.success() && workspace.names().contains(&"出.csv".to_owned()));
}

// What it prints.

#[test]
fn transform_says_one_line_or_nothing() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(20_000, 8).npy());
    let answer = workspace.succeed("transform x.npy -o z.npy --features 512");
    assert_eq!(answer.stdout, "");
    assert!(answer.stderr.starts_with("z.npy: 20,000 rows x 512 features in "), "{answer:?}");
    // A progress bar would redraw itself with carriage returns.
    assert_eq!(answer.stderr.matches(['\n', '\r', '\u{1b}', '%']).collect::<String>(), "\n", "{answer:?}");
    for flag in ["--quiet", "-q"] {
        let answer = workspace.succeed(&format!("transform x.npy -o z.npy --features 8 {flag}"));
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("", ""));
    }
}

#[test]
fn info_describes_a_spec() {
    let workspace = Workspace::with_table();
    let describe = |flags: &str| {
        workspace.succeed(&format!("transform x.npy -o z.npy --save-spec s.json {flags}"));
        let answer = workspace.succeed("info s.json");
        assert_eq!(answer.stderr, "");
        answer.stdout
    };
    let text = describe("--degree 3 --features 16 --gamma 0.5 --coef0 1 --seed 42");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "method    ctr-product-srht",
            "kernel    (0.5 <x,y> + 1)^3",
            "input     1 table with 3 columns",
            "features  16 (8 real parts, then 8 imaginary parts)",
            "seed      42",
        ]
    );
    assert!(lines[5].starts_with("memory    ") && lines.len() == 6, "{text}");
    assert!(describe("--features 4 --method complex-gaussian").contains("features  4 (2 complex numbers)\n"));
    let text = describe("x.npy --features 5 --method rademacher");
    assert!(text.contains("input     2 tables with 3, 3 columns\nfeatures  5 (real)\n"), "{text}");
    assert!(text.contains("kernel    product over the 2 inputs of (<x_i,y_i>)\n"), "{text}");
}

#[test]
fn help_has_examples() {
    let workspace = Workspace::new();
    for arguments in [
        "--help",
        "-h",
        "help",
        "transform --help",
        "transform -h",
        "info --help",
        "demo --help",
        "plan --help",
        "verify --help",
        "completions --help",
        "man --help",
    ] {
        let answer = workspace.succeed(arguments);
        assert!(answer.stdout.contains("Example") && answer.stdout.contains("  argand "), "{answer:?}");
        assert_eq!(answer.stderr, "");
    }
    assert_eq!(workspace.succeed("--version").stdout, concat!("argand ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn demo_measures_every_method() {
    let workspace = Workspace::new();
    let answer = workspace.succeed("demo --rows 100 --seeds 2 --features 32");
    assert_eq!(answer.stderr, "");
    let table = answer.stdout;
    for base in ["gaussian", "rademacher", "product-srht"] {
        for method in [base.to_owned(), format!("ctr-{base}")] {
            assert!(
                table.lines().any(|line| line.split_whitespace().take(2).eq([&method[..], "32"])),
                "{method} in {table}"
            );
        }
    }
    for method in ["tensor-sketch", "ctr-product-srht", "product-srht"] {
        for prefix in ["hierarchical-", "craft-"] {
            assert!(table.contains(&format!("\n{prefix}{method} ")), "{prefix}{method} in {table}");
        }
    }
    assert!(table.contains("\nchain-ctr-product-srht ") && table.contains("\nsrf "), "{table}");
    for line in table.lines().filter(|line| line.ends_with(" ms")) {
        let error: f64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(error > 0.0 && error < 2.0, "{line}");
    }
    // The same apart from the time, whatever the number of threads.
    let errors = |flags: &str| {
        let answer = workspace.succeed(&format!("demo --rows 100 --seeds 2 --features 32 {flags}"));
        let (table, conclusion) = answer.stdout.split_once("\nWhat this means\n").unwrap();
        assert!(
            conclusion
                .contains("hierarchical-ctr-product-srht is the same sketch as chain-ctr-product-srht at degree 3.")
        );
        table.lines().map(|line| line.get(..62).unwrap_or(line).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(errors("--threads 1"), errors("--threads 3"));
    workspace.succeed("demo --rows 10 --seeds 1 --features 8,16 --method gaussian --plot error.svg");
    assert_eq!(workspace.names(), ["error.svg"]);
    assert!(workspace.read("error.svg").starts_with(b"<svg "));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let workspace = Workspace::new();
    for arguments in ["demo --rows 300 --seeds 3 --features 32,64", "help transform"] {
        let mut command = workspace.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(!line.is_empty());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{arguments}");
    }
}

// What it leaves behind when killed.

/// Kills a long transform once it has written something, and returns the names left behind.
#[cfg(target_os = "linux")]
fn names_after_death(existing: &[&str], output: &str, kill: impl Fn(&mut std::process::Child)) -> Vec<String> {
    use std::time::{Duration, Instant};

    let workspace = Workspace::new();
    workspace.write("x.npy", npy("|u1", 200_000, 16, &[1; 3_200_000]));
    for name in existing {
        workspace.write(name, "precious");
    }
    let flags = "--method gaussian --degree 4 --features 4096 --gamma 0.01 --save-spec s.json";
    let mut child =
        workspace.command(&format!("transform x.npy -o {output} {flags}")).stderr(Stdio::null()).spawn().unwrap();
    // The file has no name, but the system lists it among the process's open files.
    let descriptors = format!("/proc/{}/fd", child.id());
    let written = || {
        let entries = fs::read_dir(&descriptors).unwrap().flatten().map(|entry| entry.path());
        let ours = entries.filter(|path| {
            fs::read_link(path).is_ok_and(|file| file.starts_with(workspace.folder.path()) && !file.ends_with("x.npy"))
        });
        ours.filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum::<u64>()
    };
    let begun = Instant::now();
    while written() < 1 << 20 {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "it does not write");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(&mut child);
    assert_eq!(child.wait().unwrap().code(), None, "it was to end by a signal");
    for name in existing {
        assert_eq!(workspace.read(name), b"precious");
    }
    workspace.names()
}

#[cfg(target_os = "linux")]
#[test]
fn killed_it_leaves_nothing() {
    use rustix::fs::{Mode, OFlags};

    // Without unnamed files, as on some file systems, a killed process must leave its temporary file behind.
    let folder = tempfile::tempdir().unwrap();
    if rustix::fs::open(folder.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).is_err() {
        return;
    }
    let terminate = |child: &mut std::process::Child| {
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    };
    assert_eq!(names_after_death(&[], "z.npy", |child| child.kill().unwrap()), ["x.npy"]);
    assert_eq!(names_after_death(&[], "z.csv", terminate), ["x.npy"]);
    assert_eq!(names_after_death(&["z.parquet"], "z.parquet", terminate), ["x.npy", "z.parquet"]);
}

/// Without a GPU the list says why there is none; it never fails.
#[test]
fn devices_are_listed() {
    let workspace = Workspace::with_table();
    let answer = workspace.succeed("info --devices");
    assert!(answer.stdout.starts_with("cpu ") && answer.stdout.contains("\ncuda"), "{}", answer.stdout);
}

/// The same bytes on the first GPU, if there is one, and otherwise an error before anything is written.
#[test]
fn a_gpu_gives_the_same_file() {
    let workspace = Workspace::with_table();
    let answer = workspace.run("transform x.npy -o gpu.npy --features 64 --device cuda");
    if answer.code == Some(0) {
        workspace.succeed("transform x.npy -o cpu.npy --features 64");
        assert_eq!(workspace.read("gpu.npy"), workspace.read("cpu.npy"));
    } else {
        assert_eq!(answer.code, Some(2), "{}", answer.stderr);
        assert!(answer.stderr.contains("--device: cuda"), "{}", answer.stderr);
        assert!(!workspace.path("gpu.npy").exists());
    }
}
