//! Mistakes that must not pass in silence, files that must not be lost, and memory that must stay bounded.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use argand::Spec;

use crate::models::{number, points, value, workspace};
use crate::support::*;

// Text.

#[test]
fn a_header_of_numbers_is_no_class_and_says_so() {
    let workspace = Workspace::new();
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i % 2, i % 2 * 5 + i % 3, i % 7)).collect();
    workspace.write("x.csv", format!("0,1,2\n{rows}"));
    workspace.write("bare.csv", &rows);
    let answer = workspace.succeed("fit x.csv --labels 0 --model ridge -o m --features 8");
    assert!(
        answer.stderr.contains("x.csv: took line 1 (\"0\", \"1\", \"2\") for names of columns"),
        "{}",
        answer.stderr
    );
    assert_eq!(value(&workspace.succeed("info m").stdout, "predicts"), "2 classes: 0, 1");
    // The same rows without a header give the same predictions, and no word about one.
    workspace.succeed("predict m x.csv -o p.csv");
    let answer = workspace.succeed("fit bare.csv --labels 0 --model ridge -o bare --features 8");
    assert!(!answer.stderr.contains("warning"), "{}", answer.stderr);
    workspace.succeed("predict bare bare.csv -o q.csv");
    assert_eq!(workspace.read("p.csv"), workspace.read("q.csv"));
    // Whoever knows better says so.
    let answer = workspace.succeed("transform x.csv -o z.npy --features 4 --header no");
    assert!(!answer.stderr.contains("warning"), "{}", answer.stderr);
    parse_npy(&workspace.read("z.npy"), "<f4", 41, 4);
    workspace.succeed("transform bare.csv -o z.npy --features 4 --header yes");
    parse_npy(&workspace.read("z.npy"), "<f4", 39, 4);
}

#[test]
fn a_first_row_without_numbers_is_not_lost_in_silence() {
    let workspace = Workspace::new();
    workspace.write("y.csv", "cat\ndog\n".repeat(10));
    workspace.write("x.npy", Table::new(20, 2).npy());
    workspace.refuse(
        "fit x.npy --labels y.csv --model ridge -o out.npy",
        &["took line 1 (\"cat\")", "--header no", "19 labels for 20"],
    );
    workspace.succeed("fit x.npy --labels y.csv --model ridge -o m --features 8 --header no");
    // What is missing does not make a header.
    workspace.write("x.csv", "?,NA\n1,2\n3,4\n");
    workspace.refuse("transform x.csv -o out.npy", &["x.csv: line 1, field 1 (counted from 1) has \"?\""]);
}

#[test]
fn text_with_other_delimiters_and_gzipped_text_are_read() {
    let workspace = Workspace::new();
    let table = Table::new(30, 3);
    let text = String::from_utf8(table.csv()).unwrap();
    workspace.write("x.csv", &text);
    workspace.write("x.tsv", text.replace(',', "\t"));
    workspace.write("x.csv.gz", gzip(text.as_bytes()));
    workspace.write("x.tsv.gz", gzip(text.replace(',', "\t").as_bytes()));
    workspace.write("semicolon.csv", text.replace(',', ";"));
    workspace.succeed("transform x.csv -o z.npy --features 8");
    let expected = workspace.read("z.npy");
    for input in ["x.tsv", "x.csv.gz", "x.tsv.gz", "semicolon.csv --delimiter ;", "semicolon.csv --delimiter semicolon"]
    {
        workspace.succeed(&format!("transform {input} -o z.npy --features 8"));
        assert_eq!(workspace.read("z.npy"), expected, "{input}");
    }
    workspace.refuse("transform semicolon.csv -o out.npy", &["--delimiter semicolon"]);
    workspace.refuse("transform x.csv -o out.npy --delimiter ab", &["--delimiter", "one character"]);
    workspace.refuse("transform x.csv -o out.csv.gz", &["compressed text is only read"]);
    workspace.succeed("transform x.csv -o z.tsv --features 4");
    workspace.succeed("transform z.tsv -o again.npy --features 2");
    parse_npy(&workspace.read("again.npy"), "<f4", 30, 2);
}

#[test]
fn text_cut_inside_its_last_number_is_told() {
    let workspace = Workspace::new();
    for (name, whole) in
        [("x.csv", "1,25\n3,45\n"), ("x.libsvm", "1 1:25 2:3\n1 1:4 2:55\n"), ("x.csv.gz", "1,25\n3,45\n")]
    {
        for cut in [0, 1, 2] {
            let text = &whole[..whole.len() - cut];
            let bytes = if name.ends_with("gz") { gzip(text.as_bytes()) } else { text.as_bytes().to_vec() };
            workspace.write(name, bytes);
            let answer = workspace.succeed(&format!("transform {name} -o z.npy --features 4"));
            let told = answer.stderr.matches("the last line has no end; if the file was cut off").count();
            assert_eq!(told, usize::from(cut > 0), "{name} without {cut} bytes: {}", answer.stderr);
        }
    }
}

// Columns.

/// A plan for a file fits that file: labels are no features, and scaling is part of the plan.
#[test]
fn a_plan_made_on_a_file_fits_that_file() {
    let (workspace, _) = workspace();
    let plan =
        workspace.succeed("plan train.csv --labels kind --scaling unit --degree 2 --features 32 --save-spec s.json");
    assert!(plan.stdout.contains("300 rows x 2 columns"), "{}", plan.stdout);
    let command = plan.stdout.lines().find_map(|line| line.trim().strip_prefix("argand ")).unwrap();
    assert!(command.contains("--labels kind") && command.contains("--scaling unit"), "{command}");
    workspace.succeed(command);
    workspace.succeed("transform train.csv -o same.npy --spec s.json");
    assert_eq!(workspace.read("same.npy"), workspace.read("z.npy"));
    workspace.succeed("fit train.csv --labels kind --model ridge --spec s.json -o m");
    let info = workspace.succeed("info m").stdout;
    assert_eq!((value(&info, "scaling"), value(&info, "columns")), ("unit", "\"x\", \"y\""));
    assert!(number(&workspace.succeed("evaluate m test.csv --labels kind").stdout, "error") < 0.05);
    workspace.succeed("verify train.csv --spec s.json --sketches 50");
    workspace
        .succeed("verify train.csv --labels kind --scaling standard --features 16 --sketches 50 --method gaussian");
    // Without the option the labels would be features, which are not numbers.
    workspace.refuse("plan train.csv --features 32", &["train.csv: line 2, field 2"]);
    let answer = workspace.succeed("fit train.csv --labels kind --model ridge --spec s.json -o m --scaling standard");
    assert!(answer.stderr.contains("--scaling: standard, but the saved sketch was made for rows of scaling unit"));
}

#[test]
fn scaled_features_are_those_of_scaled_rows() {
    let workspace = Workspace::new();
    let table = Table::new(50, 3);
    workspace.write("x.npy", table.npy());
    let unit = |row: &[f64]| {
        let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        row.iter().map(|value| value / norm).collect::<Vec<_>>()
    };
    let scaled = Table { columns: 3, values: table.rows().flat_map(unit).collect() };
    workspace.write("unit.npy", scaled.npy());
    let flags = "--features 16 --degree 3 --dtype f64";
    workspace.succeed(&format!("transform x.npy -o z.npy {flags} --scaling unit --save-spec s.json"));
    workspace.succeed(&format!("transform unit.npy -o unit-z.npy {flags}"));
    let numbers = |name: &str| -> Vec<f64> {
        workspace.read(name)[128..].as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
    };
    assert!(numbers("z.npy").iter().zip(numbers("unit-z.npy")).all(|(a, b)| (a - b).abs() < 1e-12));
    workspace.succeed("transform x.npy -o again.npy --spec s.json --dtype f64");
    assert_eq!(workspace.read("again.npy"), workspace.read("z.npy"));
    // Scaling that is learnt from rows is saved: other rows are scaled in the same way.
    workspace.succeed(&format!("transform x.npy -o z.npy {flags} --scaling standard --save-spec s.json"));
    workspace.write("two.npy", Table { columns: 3, values: table.values[..6].to_vec() }.npy());
    workspace.succeed("transform two.npy -o two-z.npy --spec s.json --dtype f64");
    assert_eq!(numbers("two-z.npy"), numbers("z.npy")[..32]);
}

#[test]
fn predicting_for_the_file_that_was_learnt_from_works_without_names() {
    let (workspace, _) = workspace();
    let (table, same) = points(300, 1);
    let lines = table.rows().zip(&same).map(|(row, same)| format!("{},{},{}\n", u8::from(*same), row[0], row[1]));
    let text: String = lines.collect();
    workspace.write("letter.data", &text);
    workspace.write("bare.data", text.lines().map(|line| format!("{}\n", &line[2..])).collect::<String>());
    workspace.succeed("fit letter.data --labels 0 --model ridge -o m --features 32");
    workspace.succeed("predict m letter.data -o p.csv");
    workspace.succeed("predict m bare.data -o q.csv");
    assert_eq!(workspace.read("p.csv"), workspace.read("q.csv"));
    workspace.succeed("plan letter.data --labels 0 --features 32 --save-spec s.json");
    workspace.succeed("fit letter.data --labels 0 --model ridge --spec s.json -o m");
    workspace.write("wide.data", text.replace('\n', ",1,2\n"));
    workspace.refuse("predict m wide.data -o out.npy", &["wide.data: has 5 columns; the model is for 2"]);
}

#[test]
fn columns_are_matched_by_name() {
    let workspace = Workspace::new();
    // Only x tells the classes apart.
    let table = |rows: usize, seed: u64| -> String {
        let line = |row: &[f64]| format!("{},{},{}\n", row[0], if row[0] > 0.0 { "right" } else { "left" }, row[1]);
        "x,kind,y\n".to_owned() + &points(rows, seed).0.rows().map(line).collect::<String>()
    };
    let text = table(200, 2);
    workspace.write("train.csv", table(300, 1));
    workspace.write("test.csv", &text);
    // x,kind,y becomes y,id,x: the label is absent, the order another, and there is one more.
    let reversed = |line: &str| {
        let (x, rest) = line.split_once(',').unwrap();
        let y = rest.rsplit(',').next().unwrap();
        format!("{y},{},{x}\n", if x == "x" { "id" } else { "7" })
    };
    workspace.write("reversed.csv", text.lines().map(reversed).collect::<String>());
    workspace.succeed("fit train.csv --labels kind --model ridge -o m --features 64 --degree 3 --coef0 1");
    assert!(number(&workspace.succeed("evaluate m test.csv --labels kind").stdout, "error") < 0.03);
    workspace.succeed("predict m test.csv -o p.npy");
    let answer = workspace.succeed("predict m reversed.csv -o q.npy");
    assert_eq!(workspace.read("p.npy"), workspace.read("q.npy"));
    let said = "reversed.csv: left out \"id\", which the model does not know";
    assert!(answer.stderr.contains(said), "{}", answer.stderr);
    workspace.succeed("predict m test.csv -o r.npy --columns y,x");
    assert_ne!(workspace.read("p.npy"), workspace.read("r.npy"), "an option is obeyed");
    workspace.write("renamed.csv", text.replacen("x,kind,y", "x,kind,z", 1));
    workspace.refuse(
        "predict m renamed.csv -o out.npy",
        &["renamed.csv: has no column \"y\"; it has \"x\", \"kind\", \"z\""],
    );
    // A saved sketch matches them, too.
    workspace.succeed("transform test.csv --labels kind -o z.npy --features 8 --save-spec s.json");
    workspace.succeed("transform reversed.csv -o y.npy --spec s.json");
    assert_eq!(workspace.read("z.npy"), workspace.read("y.npy"));
    workspace.refuse("transform renamed.csv -o out.npy --spec s.json", &["has no column \"y\""]);
    // Tables without names are matched by place.
    let (table, _) = points(200, 2);
    workspace.write("plain.npy", table.npy());
    workspace.succeed("predict m plain.npy -o q.npy");
    assert_eq!(workspace.read("p.npy"), workspace.read("q.npy"));
}

#[test]
fn columns_are_chosen_and_dropped_by_name_and_number() {
    let (workspace, _) = workspace();
    workspace.succeed("transform train.csv -o a.npy --features 8 --columns x,y");
    workspace.succeed("transform train.csv -o b.npy --features 8 --drop kind");
    workspace.succeed("transform train.parquet -o c.npy --features 8 --drop kind");
    workspace.succeed("transform train.npy -o d.npy --features 8");
    workspace.succeed("transform train.npy -o e.npy --features 8 --columns 0,1");
    for other in ["b.npy", "c.npy", "d.npy", "e.npy"] {
        assert_eq!(workspace.read("a.npy"), workspace.read(other), "{other}");
    }
    workspace.succeed("transform train.csv -o f.npy --features 8 --columns y,x");
    workspace.succeed("transform train.parquet -o g.npy --features 8 --columns y,x");
    workspace.succeed("transform train.npy -o h.npy --features 8 --columns 1,0");
    assert_ne!(workspace.read("a.npy"), workspace.read("f.npy"));
    assert_eq!(workspace.read("f.npy"), workspace.read("g.npy"));
    assert_eq!(workspace.read("f.npy"), workspace.read("h.npy"));
    workspace.refuse(
        "transform train.csv -o out.npy --drop none",
        &["--drop: expected columns that there are", "\"x\", \"kind\", \"y\""],
    );
    workspace.refuse("transform train.csv -o out.npy --columns none", &["--columns: expected columns that there are"]);
    workspace.refuse(
        "fit train.csv --labels none --model ridge -o out.npy",
        &["neither named none; there are \"x\", \"kind\""],
    );
    workspace.refuse("transform train.npy -o out.npy --drop 0,1", &["train.npy: has no columns of features"]);
}

#[test]
fn an_index_of_pandas_and_repeated_names_are_told() {
    let workspace = Workspace::new();
    for (header, word) in [
        (",a,b", "column \"\" looks like the row numbers that pandas writes"),
        ("Unnamed: 0,a,b", "column \"Unnamed: 0\" looks like"),
        ("a,b,a", "has several columns \"a\"; columns are matched by their place"),
    ] {
        workspace.write("x.csv", format!("{header}\n0,1,2\n1,3,5\n"));
        let answer = workspace.succeed("transform x.csv -o z.npy --features 4");
        assert!(answer.stderr.contains(word), "{header}: {}", answer.stderr);
        let answer = workspace.succeed("transform x.csv -o z.npy --features 4 --columns b");
        assert!(!answer.stderr.contains("warning"), "{header}: {}", answer.stderr);
    }
}

#[test]
fn missing_numbers_are_errors_or_dropped_or_filled_in() {
    let (workspace, _) = workspace();
    let text = String::from_utf8(workspace.read("train.csv")).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The numbers of some rows are missing, their labels are not.
    for row in [5, 50, 299] {
        let rest = lines[row].split_once(',').unwrap().1.to_owned();
        lines[row] = format!("NA,{rest}");
    }
    workspace.write("holes.csv", lines.join("\n") + "\n");
    let dropped: Vec<String> = lines.iter().filter(|line| !line.starts_with("NA")).cloned().collect();
    workspace.write("dropped.csv", dropped.join("\n") + "\n");
    let fit = |input: &str, flags: &str| {
        workspace.succeed(&format!("fit {input} --labels kind --model ridge --features 16 -o m {flags}")).stderr
    };
    let refused = ["holes.csv: line 6, field 1", "has \"NA\" instead of a number; use --missing drop or mean"];
    workspace.refuse("fit holes.csv --labels kind --model ridge -o out.npy", &refused);
    let said = fit("holes.csv", "--missing drop");
    assert!(said.contains("holes.csv: left out 3 of 300 rows for missing numbers"), "{said}");
    workspace.succeed("predict m test.csv -o p.csv");
    fit("dropped.csv", "");
    workspace.succeed("predict m test.csv -o q.csv");
    assert_eq!(workspace.read("p.csv"), workspace.read("q.csv"));
    // Means are learnt from the other rows, and kept in the model.
    let column: Vec<f64> = dropped[1..].iter().map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    let mean = column
        .iter()
        .fold((0.0, 0.0), |(mean, count): (f64, f64), x| (mean + (x - mean) / (count + 1.0), count + 1.0))
        .0;
    let filled: Vec<String> = lines.iter().map(|line| line.replacen("NA", &mean.to_string(), 1)).collect();
    workspace.write("filled.csv", filled.join("\n") + "\n");
    fit("holes.csv", "--missing mean");
    assert!(workspace.succeed("info m").stdout.contains("filled with the mean"));
    workspace.succeed("predict m holes.csv -o p.csv");
    fit("filled.csv", "");
    workspace.succeed("predict m filled.csv -o q.csv");
    assert_eq!(workspace.read("p.csv"), workspace.read("q.csv"));
    workspace.refuse(
        "predict m holes.csv -o out.npy --missing mean",
        &["--missing: mean: expected a model that was made with it"],
    );
    // Without labels, and in the other formats.
    workspace.succeed("transform holes.csv -o z.npy --features 4 --labels kind --missing drop");
    parse_npy(&workspace.read("z.npy"), "<f4", 297, 4);
    workspace.succeed("transform holes.csv -o z.npy --features 4 --labels kind --missing mean --save-spec s.json");
    workspace.succeed("transform filled.csv -o y.npy --features 4 --labels kind");
    assert_eq!(workspace.read("z.npy"), workspace.read("y.npy"));
    workspace.succeed("transform holes.csv -o y.npy --spec s.json");
    assert_eq!(workspace.read("z.npy"), workspace.read("y.npy"));
    workspace.write("x.npy", Table::new(6, 3).with(2, 1, f64::NAN).npy());
    workspace.succeed("transform x.npy -o z.npy --features 4 --missing drop");
    parse_npy(&workspace.read("z.npy"), "<f4", 5, 4);
    workspace.write("empty.csv", "a,b\n1,\n2,\n");
    workspace.refuse(
        "transform empty.csv -o out.npy --missing mean",
        &["empty.csv: column 1 (counted from 0) has no number"],
    );
    let answer = workspace.run("fit train.npy --labels holes.csv --model ridge -o out");
    assert_eq!(answer.code, Some(2));
}

// What is resumed, and what belongs together.

#[test]
fn a_checkpoint_knows_its_data_by_content() {
    let (workspace, _) = workspace();
    let fit = "fit train.csv --labels kind --model softmax --epochs 3 --features 32 --checkpoint state -o m";
    workspace.succeed(fit);
    let text = String::from_utf8(workspace.read("train.csv")).unwrap();
    // The same names and lengths, other labels or another number.
    let flipped = text.replace("\"same\"", "\"SAME\"").replace("\"not, the same\"", "\"same.........\"");
    let changed = text.replacen("0.", "1.", 1);
    for other in [flipped, changed] {
        assert_eq!(other.len(), text.len());
        workspace.write("train.csv", other);
        workspace
            .refuse(&fit.replace("-o m", "-o out.npy"), &["state: belongs to another run, with other rows or labels"]);
    }
    // Moved, it is the same run.
    workspace.write("moved.csv", &text);
    workspace.succeed(&fit.replace("train.csv", "moved.csv"));
}

#[test]
fn rows_whose_features_vanish_are_errors() {
    let workspace = Workspace::new();
    workspace.write("x.csv", "1,2\n1e-10,2e-10\n0,0\n");
    let words = ["x.csv: row 1 (counted from 0) underflows f32", "--gamma", "--dtype f64", "--scaling unit"];
    workspace.refuse("transform x.csv -o out.npy --degree 5 --features 8", &words);
    workspace.succeed("transform x.csv -o z.npy --degree 5 --features 8 --dtype f64");
    workspace.succeed("transform x.csv -o z.npy --degree 5 --features 8 --scaling unit");
    workspace.succeed("transform x.csv -o z.npy --degree 5 --features 8 --coef0 1");
}

#[test]
fn a_changed_spec_is_refused_and_one_without_checksum_is_told() {
    let workspace = Workspace::with_table();
    workspace.succeed("transform x.npy -o z.npy --features 8 --seed 1234 --save-spec s.json");
    let text = String::from_utf8(workspace.read("s.json")).unwrap();
    workspace.write("s.json", text.replace("1234", "1235"));
    for command in ["transform x.npy -o out.npy --spec s.json", "info s.json", "verify x.npy --spec s.json"] {
        workspace.refuse(command, &["s.json: spec: the checksum does not match"]);
    }
    let by_hand: String = text.lines().filter(|line| !line.contains("checksum")).collect::<Vec<_>>().join("\n");
    workspace.write("s.json", by_hand.replace("1234,", "1235"));
    let answer = workspace.succeed("transform x.npy -o y.npy --spec s.json");
    assert!(answer.stderr.contains("s.json: has no checksum"), "{}", answer.stderr);
    assert_ne!(workspace.read("y.npy"), workspace.read("z.npy"));
}

/// At no moment of being killed, features stand beside the spec of others.
#[cfg(target_os = "linux")]
#[test]
fn killed_at_any_moment_features_never_stand_beside_another_spec() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(2000, 4).npy());
    let make = |seed: u64| format!("transform x.npy -o z.npy --features 64 --seed {seed} --save-spec s.json --quiet");
    let features = [1, 2].map(|seed| {
        workspace.succeed(&make(seed));
        workspace.read("z.npy")
    });
    let begun = Instant::now();
    workspace.succeed(&make(1));
    let whole = begun.elapsed();
    let (mut old, mut new, mut without) = (0, 0, 0);
    for attempt in 0..60_u32 {
        workspace.succeed(&make(1));
        let mut child = workspace.command(&make(2)).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * attempt / 50);
        child.kill().unwrap();
        child.wait().unwrap();
        let spec = workspace
            .path("s.json")
            .exists()
            .then(|| Spec::from_json(&fs::read_to_string(workspace.path("s.json")).unwrap()).unwrap().seed);
        let found = features.iter().position(|bytes| *bytes == workspace.read("z.npy")).unwrap();
        match (spec, found) {
            (Some(1), 0) => old += 1,
            (Some(2), 1) => new += 1,
            (None, _) => without += 1,
            other => unreachable!("attempt {attempt}: {other:?}"),
        }
    }
    eprintln!("killed 60 times: {old} old pairs, {new} new ones, {without} without a spec");
    assert!(old > 0);
}

// Bounds.

/// Runs a command and returns its answer and the most memory it had, in MB.
#[cfg(target_os = "linux")]
fn measured(workspace: &Workspace, arguments: &str) -> (Answer, u64) {
    let mut child = workspace.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        if let Ok(text) = fs::read_to_string(&status) {
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            most = most.max(peak.and_then(|kb| kb.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let answer = Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    (answer, most / 1000)
}

/// Small files that claim much: an error, or less than 512 MB.
#[cfg(target_os = "linux")]
#[test]
fn hostile_files_take_no_more_memory_than_allowed() {
    let workspace = Workspace::new();
    // One row of 268 million zeros in 261 kB.
    let shape = [&[0, 0, 0x08, 2][..], &1_u32.to_be_bytes(), &(1_u32 << 28).to_be_bytes()].concat();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&shape).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..256).for_each(|_| encoder.write_all(&zeros).unwrap());
    workspace.write("wide.idx.gz", encoder.finish().unwrap());
    workspace.write("list.parquet", wide_list(40_000_000));
    workspace.write("page.parquet", huge_pages());
    workspace.write("commas.csv", ",".repeat(16 << 20) + "\n");
    workspace.write("commas.libsvm", "1 2147483648:1\n".repeat(3));
    let junk = "[{\"a\":{}},[[],[]]],".repeat(900_000);
    let header = format!("{{\"kind\":\"ridge\",\"arrays\":[],\"header\":{{\"x\":[{junk}0]}}}}");
    let mut model =
        [&b"argand\x1a\n"[..], &1_u32.to_le_bytes(), &u32::try_from(header.len()).unwrap().to_le_bytes()].concat();
    model.extend_from_slice(header.as_bytes());
    let sum = crc(&model);
    model.extend_from_slice(&sum.to_le_bytes());
    workspace.write("m", model);
    workspace.write("x.npy", Table::new(3, 2).npy());
    // 10 MB whose features would take 40 TB.
    workspace.write("long.npy", npy("|u1", 10_000_000, 1, &[1; 10_000_000]));
    workspace.write("y.csv", "0\n1\n0\n");
    let limit = "--memory-limit leaves for it";
    for (arguments, words) in [
        ("transform wide.idx.gz -o z.npy --features 4 --method tensor-sketch", limit),
        ("plan wide.idx.gz --features 4 --method tensor-sketch", limit),
        ("transform list.parquet -o z.npy --features 4", limit),
        ("plan list.parquet --features 4", limit),
        ("transform page.parquet -o z.npy --features 4", limit),
        ("transform commas.csv -o z.npy", "--memory-limit"),
        ("plan commas.csv --features 4", "--memory-limit"),
        ("info m", "model file"),
        ("predict m x.npy -o z.npy", "model file"),
        ("reproduce gp --table commas.libsvm --labels y.csv --quick --out r", "--memory-limit"),
        ("transform x.npy -o z.npy --threads 1024", "--threads: expected 1 to 256"),
        ("transform long.npy -o z.npy --features 1000000 --method tensor-sketch", "are free there"),
        ("demo --seeds 1000000000000", "--seeds: expected 1 to"),
        ("reproduce all --quick --seeds 1000000000000 --out r", "--seeds"),
    ] {
        let (answer, peak) = measured(&workspace, arguments);
        eprintln!("{peak:>4} MB {arguments}: {}", answer.stderr.trim());
        assert_eq!(answer.code, Some(2), "{arguments}: {}", answer.stderr);
        assert!(answer.stderr.contains(words), "{arguments}: {}", answer.stderr);
        assert!(peak < 512, "{arguments}: {peak} MB");
    }
    let output = workspace.command("transform x.npy -o z.npy").env("RAYON_NUM_THREADS", "100000").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("RAYON_NUM_THREADS: expected at most 256"));
}

/// The CRC-32 of some bytes.
fn crc(bytes: &[u8]) -> u32 {
    let mut hash = flate2::Crc::new();
    hash.update(bytes);
    hash.sum()
}

/// A table of one row, a list of so many zeros, in a few kilobytes.
fn wide_list(length: i32) -> Vec<u8> {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
    use arrow_schema::{DataType, Field};
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let zeros = Arc::new(Float32Array::from(vec![0.0; usize::try_from(length).unwrap()]));
    let list = FixedSizeListArray::new(item, length, zeros, None);
    parquet(&RecordBatch::try_from_iter([("v", Arc::new(list) as ArrayRef)]).unwrap())
}

/// A table whose pages claim to hold 134 MB each.
fn huge_pages() -> Vec<u8> {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::properties::WriterProperties;
    let column = || Arc::new(Float64Array::from(vec![1.5; 140_000])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("a", column()), ("b", column()), ("c", column())]).unwrap();
    let properties =
        WriterProperties::builder().set_dictionary_enabled(false).set_data_page_row_count_limit(usize::MAX).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let scratch = tempfile::NamedTempFile::new().unwrap();
    fs::write(scratch.path(), &bytes).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(scratch.path()).unwrap()).unwrap();
    for column in reader.metadata().row_groups().iter().flat_map(|group| group.columns()) {
        let start = usize::try_from(column.data_page_offset()).unwrap();
        // Field 1, the type, is 0; field 2, the size, takes four bytes of seven bits: all of them set but the lowest, the sign.
        assert_eq!((bytes[start], bytes[start + 1], bytes[start + 2]), (0x15, 0, 0x15));
        assert!(bytes[start + 5] & 0x80 != 0 && bytes[start + 6] & 0x80 == 0, "a size of four bytes");
        bytes[start + 3..start + 7].copy_from_slice(&[0xfe, 0xff, 0xff, 0x7f]);
    }
    bytes
}

#[cfg(unix)]
#[test]
fn pipes_are_refused_where_a_file_is_read() {
    let workspace = Workspace::with_table();
    assert!(std::process::Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    for arguments in [
        "info pipe",
        "transform x.npy -o out.npy --spec pipe",
        "predict pipe x.npy -o out.npy",
        "verify x.npy --spec pipe",
    ] {
        workspace.refuse(arguments, &["pipe: is not a regular file"]);
    }
}

#[test]
fn predictions_of_many_classes_are_made_in_small_blocks() {
    let workspace = Workspace::new();
    let rows = 6000;
    let table = Table::new(rows, 2);
    workspace.write("x.npy", table.npy());
    let labels: String = (0..rows).map(|row| format!("{}\n", row % 3000)).collect();
    workspace.write("y.csv", format!("y\n{labels}"));
    workspace.succeed("fit x.npy --labels y.csv --model ridge -o m --features 8 --lambda 1");
    workspace.succeed("predict m x.npy -o p.npy");
    #[cfg(target_os = "linux")]
    {
        let (answer, peak) = measured(&workspace, "predict m x.npy -o p.npy");
        assert_eq!(answer.code, Some(0));
        // All predictions at once would take 144 MB.
        eprintln!("{peak} MB for {rows} rows of 3,000 classes");
        assert!(peak < 120, "{peak} MB");
    }
}

// What is left behind, and what is printed.

#[cfg(target_os = "linux")]
#[test]
fn old_temporary_files_are_swept_by_the_next_run() {
    let workspace = Workspace::with_table();
    let old = std::time::SystemTime::now() - Duration::from_secs(7200);
    workspace.write(".argand-00ff.tmp", "left by a killed process");
    fs::File::options().write(true).open(workspace.path(".argand-00ff.tmp")).unwrap().set_modified(old).unwrap();
    workspace.succeed("transform x.npy -o z.npy --features 4");
    assert_eq!(workspace.names(), ["x.npy", "z.npy"]);
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let workspace = Workspace::new();
    let evil = "\u{1b}[31mred\u{7}";
    workspace.write("x.csv", format!("{evil},b,{evil}\n1,2,3\n2,1,0\n"));
    workspace.write("y.csv", format!("y\n{evil}\nplain\n"));
    let mut said = String::new();
    for arguments in [
        "transform x.csv -o z.npy --features 4",
        "transform x.csv -o z.npy --features 4 --columns nothing",
        "fit x.csv --labels y.csv --model ridge -o m --features 4",
        "info m",
        "evaluate m x.csv --labels nothing",
    ] {
        let answer = workspace.run(arguments);
        said += &(answer.stdout + &answer.stderr);
    }
    assert!(said.contains("red"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    workspace.write("s.json", Spec::polynomial(3).to_json().replace("ctr-product-srht", "\\u001b[31m"));
    let answer = workspace.run("info s.json");
    assert!(answer.code == Some(2) && !answer.stderr.contains('\u{1b}'), "{answer:?}");
}
