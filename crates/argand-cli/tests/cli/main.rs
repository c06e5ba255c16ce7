//! The command line as its users meet it: the real program, real files, exit codes and messages.
//!
//! One program for all suites: each of its own would be linked with everything again.
#![allow(unreachable_pub, missing_docs, reason = "a test has no users")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod models;
mod plans;
mod refusals;
mod report;
mod reproduce;
mod support;
mod transform;
