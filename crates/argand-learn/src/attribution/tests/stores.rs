//! Stores that were damaged, are hostile, or do not fit together.

use super::*;

fn refused(folder: &Folder, parts: &[&str]) {
    let message = run(folder, 2, &Options::default()).unwrap_err().to_string();
    parts.iter().for_each(|part| assert!(message.contains(part), "{message}: {part}"));
}

#[test]
fn damaged_stores_are_refused() {
    let (folder, rows, _) = problem("damaged");
    let path = folder.join("train/shard-000000000008.npy");
    let bytes = fs::read(&path).unwrap();
    // Every byte counts: of the header, the shape, the numbers.
    for at in [0, 6, 8, 9, 12, 60, 126, 127, 128, 300, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        refused(&folder, &["shard-000000000008.npy"]);
    }
    for length in [0, 5, 10, 100, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).unwrap();
        refused(&folder, &["shard-000000000008.npy"]);
    }
    fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
    refused(&folder, &["shard-000000000008.npy", "expected 128 + 416 bytes", "record its examples again"]);
    fs::remove_file(&path).unwrap();
    refused(&folder, &["shard-000000000008.npy: cannot open", "remove shard-000000000008.json"]);
    fs::write(&path, &bytes).unwrap();
    // A table without its description is unfinished, and ignored.
    fs::write(folder.join("train/shard-000000000099.npy"), &bytes[..50]).unwrap();
    let [train, _] = open(&folder);
    assert_eq!((train.unfinished().len(), train.examples(), train.gaps()), (1, 20, vec![16..32]));
    run(&folder, 2, &Options::default()).unwrap();
    // Numbers that are not finite, in a file that is as it was written.
    for (value, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut rows = rows[..8 * COLUMNS].to_vec();
        rows[3 * COLUMNS + 7] = value;
        shard(&folder.join("train"), 8, &rows, COLUMNS);
        let want = format!("example 11, layer \"a.fc2\": the gradient is {text}");
        refused(&folder, &["shard-000000000008.npy", &want]);
        for measure in [Measure::Similarity, Measure::Cosine] {
            let options = Options { measure, ..Options::default() };
            let [train, queries] = open(&folder);
            for message in [
                run(&folder, 2, &options).unwrap_err().to_string(),
                score_matrix(&train, &queries, &options, &mut |_| ()).unwrap_err().to_string(),
            ] {
                assert!(message.contains(&want), "{message}");
            }
            // Of other layers, nobody asks.
            run(&folder, 2, &Options { layers: vec!["b".into()], measure, ..Options::default() }).unwrap();
        }
    }
    // Finite numbers whose products are not.
    shard(&folder.join("train"), 8, &vec![f32::MAX; 8 * COLUMNS], COLUMNS);
    let options = Options { measure: Measure::Similarity, ..Options::default() };
    let message = run(&folder, 2, &options).unwrap_err().to_string();
    assert!(message.contains("example 8: its scores leave the range of single precision"), "{message}");
}

/// What the recorder does to write a shard again, in its order, each an atomic step.
fn steps_of_replacing(train: &Path, rows: &[f32]) -> Vec<Box<dyn Fn()>> {
    let (train, rows) = (train.to_owned(), rows.to_owned());
    let [table, entry] = ["npy", "json"].map(|kind| train.join(format!("shard-000000000032.{kind}")));
    let [new_table, new_entry] = ["npy", "json"].map(|kind| train.join(format!(".argand-shard-000000000032.{kind}")));
    let old_entry = entry.clone();
    vec![
        Box::new(move || shard_named(&train, ".argand-", 32, &rows, COLUMNS)),
        Box::new(move || fs::remove_file(&old_entry).unwrap()),
        Box::new(move || fs::rename(&new_table, &table).unwrap()),
        Box::new(move || fs::rename(&new_entry, &entry).unwrap()),
    ]
}

/// Wherever a recorder was killed, the new shard counts; what was opened before is not called damaged.
#[test]
fn a_shard_that_is_replaced_is_not_damaged() {
    for done in 1..=4 {
        let (folder, rows, _) = problem(&format!("replaced-{done}"));
        let [before, queries] = open(&folder);
        let new: Vec<f32> = rows[..6 * COLUMNS].to_vec();
        steps_of_replacing(&folder.join("train"), &new).iter().take(done).for_each(|step| step());
        let [train, _] = open(&folder);
        assert_eq!((train.examples(), train.unfinished().len()), (22, 0), "{done}");
        let found = run(&folder, 22, &Options::default()).unwrap();
        assert_eq!(found.helpful.len(), 3 * 22);
        let late = attribute(&before, &queries, 2, &Options::default(), &mut |_| ());
        match late {
            // The old table is in its place.
            Ok(_) => assert_eq!(done, 1),
            Err(error) => {
                let message = error.to_string();
                assert!(done > 1 && message.contains("train: is being recorded: a shard was replaced"), "{message}");
            }
        }
    }
    // Rows that are read one by one.
    let (folder, rows, _) = problem("replaced-rows");
    let [before, _] = open(&folder);
    shard(&folder.join("train"), 32, &rows[..6 * COLUMNS], COLUMNS);
    let message = SingleRows::open(&before.shards()[2], COLUMNS).err().unwrap().to_string();
    assert!(message.contains("is being recorded"), "{message}");
}

/// A recorder that writes its last shard again and again, under its lock: every reader sees the old shard or the new one.
#[cfg(unix)]
#[test]
fn stores_are_read_while_they_are_recorded() {
    let (folder, rows, _) = problem("recorded");
    let train = folder.join("train");
    let done = std::sync::atomic::AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in [8, 4].into_iter().cycle() {
                let lock = fs::File::open(&train).unwrap();
                lock.lock().unwrap();
                steps_of_replacing(&train, &rows[..count * COLUMNS]).iter().for_each(|step| step());
                drop(lock);
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        let options = Options { measure: Measure::Similarity, ..Options::default() };
        let read = |_| (Store::open(&train).map(|store| store.examples()), run(&folder, 2, &options));
        let found: Vec<_> = (0..300).map(read).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        found
    });
    for (examples, scores) in found {
        assert!(matches!(examples, Ok(20 | 24)), "{examples:?}");
        let message = scores.err().map(|error| error.to_string());
        assert!(message.as_ref().is_none_or(|message| message.contains("is being recorded")), "{message:?}");
    }
}

#[test]
fn hostile_descriptions_are_refused() {
    let (folder, rows, _) = problem("hostile");
    let train = folder.join("train");
    let entry = folder.join("train/shard-000000000008.json");
    let good = fs::read_to_string(&entry).unwrap();
    for (text, part) in [
        ("", "EOF"),
        ("[]", "invalid"),
        ("{\"first\": 8, \"rows\": 8}", "crc32"),
        ("{\"first\": 8, \"rows\": 18446744073709551615, \"crc32\": \"00000000\"}", "rows: expected at least 1"),
        ("{\"first\": 8, \"rows\": 1e300, \"crc32\": \"00000000\"}", "invalid"),
        ("{\"first\": 8, \"rows\": -8, \"crc32\": \"00000000\"}", "invalid"),
        ("{\"first\": 8, \"rows\": 0, \"crc32\": \"00000000\"}", "rows: expected at least 1"),
        ("{\"first\": 8, \"rows\": 8, \"rows\": 8, \"crc32\": \"00000000\"}", "duplicate"),
        ("{\"first\": 9, \"rows\": 8, \"crc32\": \"00000000\"}", "first example is 9"),
        ("{\"first\": 8, \"rows\": 8, \"crc32\": \"+0000000\"}", "8 hexadecimal digits"),
        ("{\"first\": 8, \"rows\": 8, \"crc32\": 12}", "invalid"),
        ("{\"first\": 8, \"rows\": 7, \"crc32\": \"00000000\"}", "'shape':(7,13)"),
    ] {
        fs::write(&entry, text).unwrap();
        refused(&folder, &["shard-000000000008", part]);
    }
    fs::write(&entry, good).unwrap();
    shard(&folder.join("train"), 15, &rows[..4 * COLUMNS], COLUMNS);
    refused(&folder, &["shard-000000000015.npy: starts before", "ends, at example 16"]);
    remove(&train, "shard-000000000015");
    let last = "shard-18446744073709551615";
    fs::write(folder.join(&format!("train/{last}.npy")), table(&rows[..COLUMNS], COLUMNS)).unwrap();
    let text = format!("{{\"first\": {}, \"rows\": 1, \"crc32\": \"00000000\"}}", u64::MAX);
    fs::write(folder.join(&format!("train/{last}.json")), text).unwrap();
    refused(&folder, &[last, "memory can hold"]);
    remove(&train, last);

    let store = folder.join("train/store.json");
    let good = fs::read_to_string(&store).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&good).unwrap();
        change(&mut value);
        value.to_string()
    };
    for (text, part) in [
        (String::new(), "EOF"),
        (good.replacen("argand-gradients", "other", 1), "expected \"format\": \"argand-gradients\", got \"other\""),
        (with(&|value| value["version"] = json!(2)), "newer"),
        (with(&|value| value["version"] = json!(0)), "got 0"),
        (with(&|value| value["version"] = json!("1")), "invalid type"),
        (with(&|value| value["layers"] = json!([])), "has no layers"),
        (with(&|value| value["layers"] = json!(null)), "invalid type"),
        (with(&|value| value["layers"][2]["features"] = json!(0)), "layer \"b\": expected at least one feature"),
        (with(&|value| value["layers"][2]["features"] = json!(u64::MAX)), "layer \"b\""),
        (with(&|value| value["layers"][2]["features"] = json!(-1)), "invalid value"),
        (with(&|value| value["layers"][0]["features"] = json!(4)), "layer \"a.fc1\": its spec has 6 features, not 4"),
        (with(&|value| value["layers"][0]["name"] = json!("b")), "layer \"b\" is there twice"),
        (with(&|value| value["layers"][0]["kind"] = json!("lstm")), "expected the kind linear"),
        (with(&|value| value["layers"][0]["spec"]["seed"] = json!(7)), "layer \"a.fc1\": spec: the checksum"),
        (with(&|value| value["layers"][0]["spec"] = json!(3)), "layer \"a.fc1\": spec"),
        (good.replacen("\"layers\"", "\"layers\": [], \"layers\"", 1), "duplicate field"),
    ] {
        fs::write(&store, text).unwrap();
        refused(&folder, &["store.json", part]);
    }
    fs::remove_file(&store).unwrap();
    refused(&folder, &["train: is not a store"]);
}

#[test]
fn stores_that_do_not_fit_are_refused() {
    let (folder, _, queries) = problem("unfit");
    let path = folder.join("queries");
    let mut other = layers();
    other[1] = layer("a.fc2", 4, Some(spec("gaussian", 4, 3)));
    describe(&path, &other);
    refused(&folder, &["queries: layer \"a.fc2\" has the sketch gaussian of seed 3, and gaussian of seed 2 in"]);
    run(&folder, 2, &Options { layers: vec!["a.fc1".into(), "b".into()], ..Options::default() }).unwrap();
    other[1] = layer("a.fc2", 4, None);
    describe(&path, &other);
    refused(&folder, &["layer \"a.fc2\" has no sketch of Argand's"]);
    other[1] = layer("a.fc3", 4, None);
    describe(&path, &other);
    refused(&folder, &["train: has no layer \"a.fc3\", which", "record both with the same layers"]);
    describe(&path, &[layer("a.fc1", 6, Some(spec("ctr-rademacher", 6, 1))), layer("a.fc2", 7, None)]);
    refused(&folder, &["layer \"a.fc2\" has 7 features, and 4"]);
    let text = json!({"format": "argand-gradients", "version": 1, "shard_rows": 8, "model": "ab", "layers": layers()});
    fs::write(path.join("store.json"), text.to_string()).unwrap();
    refused(&folder, &["another model (ab) than", "(00ff); record both with the same weights"]);
    describe(&path, &layers());
    let unknown = Options { layers: vec!["c*".into()], ..Options::default() };
    assert!(run(&folder, 2, &unknown).unwrap_err().to_string().contains("\"a.fc1\", \"a.fc2\", \"b\", got \"c*\""));
    for damping in [Damping::Multiple(-1.0), Damping::Lambda(f64::NAN)] {
        assert!(run(&folder, 2, &Options { damping, ..Options::default() }).is_err());
    }
    assert!(run(&folder, 0, &Options::default()).unwrap_err().to_string().contains("top: expected at least 1"));
    let scores = run(&folder, 99, &Options::default()).unwrap();
    assert_eq!(scores.top, 20);
    assert!(scores.notes[0].contains("has 20 examples, fewer than the 99 asked for"), "{:?}", scores.notes);
    let small = Options { memory_limit: 1400, joint: true, ..Options::default() };
    assert!(run(&folder, 2, &small).unwrap_err().to_string().contains("joint: expected features"));
    let [train, query_store] = open(&folder);
    let small = Options { memory_limit: 500, measure: Measure::Cosine, ..Options::default() };
    assert!(matches!(score_matrix(&train, &query_store, &small, &mut |_| ()), Err(Error::TooLarge { .. })));
    // Too little damping for as few examples as these.
    shard(&folder.join("queries"), 5, &queries, COLUMNS);
    for shard in [8, 32] {
        remove(&folder.join("train"), &format!("shard-{shard:012}"));
    }
    let none = Options { damping: Damping::Lambda(0.0), joint: true, ..Options::default() };
    let message = run(&folder, 2, &none).unwrap_err().to_string();
    assert!(message.contains("the curvature of 3 layers together is singular"), "{message}");
    remove(&folder.join("train"), "shard-000000000000");
    refused(&folder, &["train: has no examples"]);
}

/// A table that is as long as it says, but for the most part a hole in the file system.
fn hollow(path: &Path, rows: usize, columns: usize) {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let header = format!("{shape:<117}\n");
    let start = [&b"\x93NUMPY\x01\x00"[..], &[118, 0], header.as_bytes()].concat();
    fs::write(path.join("shard-000000000000.npy"), &start).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path.join("shard-000000000000.npy")).unwrap();
    file.set_len((start.len() + 4 * rows * columns) as u64).unwrap();
    let entry = json!({"first": 0, "rows": rows, "crc32": "00000000"});
    fs::write(path.join("shard-000000000000.json"), entry.to_string()).unwrap();
}

/// Claims that files make good, of more than memory holds.
#[test]
fn stores_that_need_too_much_memory_are_refused() {
    const HUGE: usize = 1 << 33;
    let folder = Folder::new("huge");
    for name in ["train", "queries"] {
        describe(&folder.join(name), &[layer("a", HUGE, None)]);
        hollow(&folder.join(name), 1, HUGE);
    }
    let [train, queries] = open(&folder);
    for measure in Measure::ALL {
        let options = Options { measure, ..Options::default() };
        let message = run(&folder, 1, &options).unwrap_err().to_string();
        assert!(message.contains("train: examples of 8589934592 numbers do not fit into"), "{message}");
        assert!(score_matrix(&train, &queries, &options, &mut |_| ()).is_err());
    }
    describe(&folder.join("train"), &[layer("a", 2, None)]);
    shard(&folder.join("train"), 0, &numbers(100, 1), 2);
    describe(&folder.join("queries"), &[layer("a", 2, None)]);
    hollow(&folder.join("queries"), HUGE, 2);
    refused(&folder, &["queries: the scores of 8589934592 queries do not fit into"]);
    // Long lists, for which the error says how long they may be.
    shard(&folder.join("queries"), 0, &numbers(4, 2), 2);
    let options = Options { measure: Measure::Similarity, memory_limit: 1000, ..Options::default() };
    let message = run(&folder, 50, &options).unwrap_err().to_string();
    assert!(message.contains("top: expected at most 4, so that lists for 2 queries fit into 1000 bytes"), "{message}");
    run(&folder, 4, &options).unwrap();
}

#[test]
fn an_infinite_lambda_is_no_lack_of_damping() {
    let (folder, ..) = problem("infinite");
    let options = Options { damping: Damping::Multiple(f64::MAX), ..Options::default() };
    let message = run(&folder, 2, &options).unwrap_err().to_string();
    assert!(message.contains("damping: expected a number that makes λ finite"), "{message}");
}

/// Something that waits for a writer is not read.
#[cfg(unix)]
#[test]
fn pipes_are_refused() {
    for name in ["store.json", "shard-000000000008.json", "shard-000000000008.npy"] {
        let (folder, ..) = problem("pipes");
        let path = folder.join("train").join(name);
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        refused(&folder, &[name, "not a regular file"]);
    }
}
