//! The command line from the user's side: the real program, real files, exit codes and messages.
//!
//! All suites share one binary: separate ones would each link everything again.
#![allow(unreachable_pub, missing_docs, reason = "a test has no users")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod attribution;
mod choices;
mod kernels;
mod leftovers;
mod manual;
mod models;
mod plan_page;
mod plans;
mod refusals;
mod reliability;
mod report;

mod reproduce;
mod shards;
mod support;
mod transform;
mod trust;
