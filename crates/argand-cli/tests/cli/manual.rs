//! Completions and manual pages know every command and its options.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::Workspace;

const COMMANDS: [&str; 14] = [
    "attribute",
    "completions",
    "demo",
    "evaluate",
    "fit",
    "gram",
    "info",
    "man",
    "merge",
    "plan",
    "predict",
    "reproduce",
    "transform",
    "verify",
];

#[test]
fn manual_pages_are_there_for_every_command() {
    let workspace = Workspace::new();
    workspace.succeed("man .");
    let mut expected: Vec<String> = COMMANDS.iter().map(|name| format!("argand-{name}.1")).collect();
    expected.push("argand.1".to_owned());
    expected.sort();
    assert_eq!(workspace.names(), expected);
    let text = |name: &str| String::from_utf8(workspace.read(name)).unwrap();
    assert!(text("argand.1").contains(".TH argand 1") && text("argand.1").contains("argand\\-plan(1)"));
    let plan = text("argand-plan.1");
    assert!(plan.contains("\\-\\-target\\-error") && plan.contains("Examples:"), "{plan}");
    let answer = workspace.run("man nowhere");
    assert!(answer.code == Some(2) && answer.stderr.contains("nowhere"), "{answer:?}");
}

#[test]
fn shells_accept_their_completions() {
    let workspace = Workspace::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = workspace.succeed(&format!("completions {shell}")).stdout;
        for name in COMMANDS {
            assert!(script.contains(name), "{name} is not in the completions of {shell}");
        }
        assert!(script.contains("target-error"), "{shell}");
    }
    // Bash is asked what follows `argand ev`.
    let script = workspace.succeed("completions bash").stdout;
    let Ok(mut bash) = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("NOT RUN: there is no bash to try the completions in");
        return;
    };
    let asked = "COMP_WORDS=(argand ev) COMP_CWORD=1; _argand argand ev argand; echo \"${COMPREPLY[@]}\"";
    bash.stdin.take().unwrap().write_all(format!("{script}\n{asked}\n").as_bytes()).unwrap();
    let answer = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "evaluate\n");
}
