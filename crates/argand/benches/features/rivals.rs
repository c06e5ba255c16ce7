//! A Python process that times scikit-learn and numpy on one thread, on request.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Shape;

/// The process; it waits for requests without using the processor.
pub(crate) struct Rivals {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rivals {
    /// `None`, with a message, if `ARGAND_PYTHON` names no interpreter.
    pub(crate) fn start() -> Option<Self> {
        let Some(python) = std::env::var_os("ARGAND_PYTHON") else {
            eprintln!("ARGAND_PYTHON is not set: no times of scikit-learn and numpy");
            return None;
        };
        let mut command = Command::new(python);
        command.args(["-c", include_str!("rivals.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, "1");
        }
        let mut child = command.spawn().expect("ARGAND_PYTHON runs");
        let (ask, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Some(Self { child, ask, answers: BufReader::new(answers) })
    }

    /// Seconds.
    pub(crate) fn time(&mut self, name: &str, Shape { rows, dim, degree, features }: Shape) -> f64 {
        writeln!(self.ask, "{name} {rows} {dim} {degree} {features}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim().parse::<f64>().expect("milliseconds") / 1e3
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
