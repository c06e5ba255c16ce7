"""Mistakes put into the code, one at a time: a test must fail for each.

    python scripts/slips.py [--only WORD] [--list] [--docs]

A slip is a file, the text it has, the text of the mistake, and the tests that should notice it. Files are restored after every slip;
a file with changes that are not committed is refused. A slip whose text is not there any more is a failure, too: the list must follow the code.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = "cargo test --locked --package argand --lib"
LEARN = "cargo test --locked --package argand-learn --test models"
CLI = "cargo test --locked --package argand-cli --test cli"
BIN = "cargo test --locked --package argand-cli --bin argand"

# (what, file, text, mistake, command, test)
SLIPS = [
    ("plan: memory limit ignored", "crates/argand/src/plan/search.rs",
     "Ok(bytes) if bytes > self.request.memory_limit =>", "Ok(bytes) if bytes == u64::MAX =>",
     CORE, "plan::search"),
    ("plan: memory limit ignored by the command line", "crates/argand-cli/src/plan.rs",
     "request.memory_limit = arguments.tables.table.limit();", "",
     CLI, "plans_obey_the_memory_limit_of_the_command_line"),
    ("plan: memory limit not checked at the end", "crates/argand/src/plan/search.rs",
     "if self.possible(&spec) {\n                        if method", "if true {\n                        if method",
     CORE, "the_memory_limit_holds_for_the_sketch_that_is_found"),
    ("plan: the slowest among the close ones", "crates/argand/src/plan/ranking.rs",
     "close.min_by(", "close.max_by(", CORE, "plan::ranking"),
    ("plan: time budget ignored", "crates/argand/src/plan/mod.rs",
     "request.seconds().is_none_or(|budget| candidate.total_seconds() <= budget)", "true", CORE, "plan::tests"),
    ("plan: time budget does not count the fit", "crates/argand/src/plan/mod.rs",
     "is_none_or(|budget| candidate.total_seconds() <= budget)",
     "is_none_or(|budget| candidate.feature_seconds <= budget)", CORE, "the_time_budget_is_total"),
    ("plan: predicted errors decide in spite of labels", "crates/argand/src/plan/mod.rs",
     "ranking::rank_fitted(self.goal, &mut self.candidates)", "ranking::rank(self.goal, &mut self.candidates)",
     CORE, "gaussian_kernels_are_planned_and_judged"),
    ("plan: candidates judged by rows they learnt from", "crates/argand-learn/src/finalists.rs",
     "let (judged, training) = order.split_at((rows / 2).min(JUDGED_ROWS));",
     "let (judged, training) = (&order[..rows / 2], &order[..rows / 2]);",
     "cargo test --locked --package argand-learn --lib", "labels_rank_a_plan"),
    ("allocation: learning shares as the kernel does", "crates/argand/src/fit/allocation.rs",
     "match self.aim {\n            Aim::Kernel =>", "match Aim::Kernel {\n            Aim::Kernel =>",
     CORE, "learning_wants_higher_powers"),
    ("plan: target met by the estimate", "crates/argand/src/plan/search.rs",
     "list.into_iter().zip(errors).find(|(_, error)| error.interval()[1] <= target)",
     "list.into_iter().zip(errors).find(|(_, error)| error.relative <= target)",
     CORE, "a_target_is_reached_with_confidence"),
    ("plan: time of a fit in proportion to D", "crates/argand/src/plan/timing.rs",
     "features.powi(2) * (self.rows + 2.0 / 3.0 * features) / self.rate",
     "features * (self.rows + 2.0 / 3.0 * features) / self.rate",
     CORE, "times_grow_with_the_features"),
    ("plan: dense timing not extrapolated", "crates/argand/src/plan/timing.rs",
     "features: per_row * self.rows * part", "features: per_row * self.rows",
     CORE, "times_grow_with_the_features"),
    ("theory: diagonal not extrapolated", "crates/argand/src/theory/error.rs",
     "/ (sampled * (sampled - 1.0)) + itself * all / sampled", "/ (sampled * (sampled - 1.0)) + itself",
     CORE, "sums_of_a_population_are_extrapolated_apart"),
    ("theory: n²/r² for n(n-1)/r(r-1)", "crates/argand/src/theory/error.rs",
     "others * (all * (all - 1.0)) / (sampled * (sampled - 1.0))", "others * (all * all) / (sampled * sampled)",
     CORE, "sums_of_a_population_are_extrapolated_apart"),
    ("theory: no finite-population factor", "crates/argand/src/theory/error.rs",
     "let missing = 1.0 - rows as f64 / self.population as f64;", "let missing = 1.0;",
     CORE, "the_standard_error_is_that_of_a_finite_population"),
    ("theory: the first rows instead of random ones", "crates/argand/src/theory/pairs.rs",
     "order.swap(position, position + stream.below(left) as usize);", "let _ = stream.below(left);",
     CORE, "rows_are_chosen_at_random"),
    ("ridge: degrees of freedom off by one", "crates/argand-learn/src/ridge.rs",
     "1.0 + self.eigen.values.iter()", "self.eigen.values.iter()", LEARN, "ridge_solves_the_normal_equations"),
    ("ridge: held-out errors lose the class shift", "crates/argand-learn/src/ridge.rs",
     "let constant = shift - offset;", "let constant = -offset;", LEARN, "ridge_classifies_by_one_and_minus_one"),
    ("ridge: left-out errors lose the class shift", "crates/argand-learn/src/ridge.rs",
     "error += ((scale * target + shift - mean", "error += ((scale * target - mean",
     LEARN, "ridge_classifies_by_one_and_minus_one"),
    ("gp: likelihood of several targets counts the determinant once", "crates/argand-learn/src/gp/regressor.rs",
     "-0.5 * (residual + columns as f64 * each)", "-0.5 * (residual + each)",
     LEARN, "several_targets_have_the_likelihood_of_all_and_share_the_noise"),
    ("gp: noise of several targets", "crates/argand-learn/src/gp/regressor.rs",
     "((total - explained) / (rows * columns)).max(least)", "((total - explained) / rows).max(least)",
     LEARN, "several_targets_have_the_likelihood_of_all_and_share_the_noise"),
    ("gram: a merge forgets squared targets", "crates/argand-learn/src/gram/mod.rs",
     "(&mut self.target_squares, &other.target_squares),", "(&mut self.target_squares, &vec![0.0; other.target_squares.len()]),",
     LEARN, "merged_sums_are_those_of_all_rows"),
    ("verify: the command never disagrees", "crates/argand-cli/src/verify.rs",
     "report.scores().any(|z| z.is_nan() || z.abs() > bound)", "report.scores().any(|z| z.is_nan() && z.abs() > bound)",
     BIN, "the_command_disagrees_where_theory_and_sketches_do"),
    ("verify: duplicates overwritten", "crates/argand/src/verify.rs",
     "dense[column] += value.to_f64()", "dense[column] = value.to_f64()", CORE, "repeated_columns_are_added"),
    ("fit: penalty chosen on training rows", "crates/argand-cli/src/fit/work.rs",
     'let other = self.gram(validation, false, "validation ")?;', 'let other = self.gram(self.training, false, "validation ")?;',
     CLI, "penalties_and_noise_are_chosen_on_validation_rows"),
    ("fit: alpha chosen on training rows", "crates/argand-cli/src/fit/work.rs",
     "Ok(self.score(model, validation)?.loss())", "Ok(self.score(model, self.training)?.loss())",
     CLI, "penalties_and_noise_are_chosen_on_validation_rows"),
    ("fit: scaling learnt from held-out rows", "crates/argand-cli/src/fit/mod.rs",
     'let mut pass = training.pass(Some(saved), task, "scaling ")?;',
     'let mut all = training.clone();\n        all.part = Part::All;\n        let mut pass = all.pass(Some(saved), task, "scaling ")?;',
     CLI, "scaling_is_learnt_without_the_held_out_rows"),
    ("evaluate: likelihood without the noise", "crates/argand-learn/src/score.rs",
     "found.variances.iter().map(|latent| latent + noise).collect()", "found.variances.iter().map(|latent| latent + 0.0 * noise).collect()",
     CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("evaluate: likelihood without 2π", "crates/argand-learn/src/score.rs",
     "(std::f64::consts::TAU * variance).ln()", "variance.ln()",
     CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("evaluate: r² not centred", "crates/argand-learn/src/score.rs",
     "self.target_squares - self.targets * self.targets / self.rows as f64;", "self.target_squares;",
     CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("fit: classes sorted as text", "crates/argand-cli/src/dataset.rs",
     "names.sort_by_key(|name| (name.parse::<i64>().unwrap_or(i64::MAX), name.clone()));", "names.sort();",
     CLI, "classes_that_are_numbers_are_in_the_order_of_numbers"),
    ("sample: the first rows are kept", "crates/argand-cli/src/inputs.rs",
     "stream.below(u32::try_from(total + 1).unwrap_or(u32::MAX)) as usize", "{ let _ = stream.below(2); total }",
     BIN, "a_sample_is_of_the_whole_file"),
]


def broken(text: str, old: str, new: str) -> str | None:
    return text.replace(old, new, 1) if text.count(old) >= 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="slips whose description contains this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--cargo", default="cargo", help="how cargo is called, for example with --offline")
    parser.add_argument("--docs", action="store_true", help="write the table to docs/reliability.md")
    arguments = parser.parse_args()
    chosen = [slip for slip in SLIPS if arguments.only in slip[0]]
    if arguments.list:
        print("\n".join(f"{what}: {test}" for what, _, _, _, _, test in chosen))
        return 0
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    survived, found = [], []
    for what, file, old, new, command, test in chosen:
        path = ROOT / file
        if subprocess.run(["git", "diff", "--quiet", "--", file], cwd=ROOT).returncode:
            sys.exit(f"{file} has changes; commit them first")
        whole = path.read_text()
        changed = broken(whole, old, new)
        if changed is None:
            survived.append(f"{what}: the text is not in {file} any more")
            continue
        try:
            path.write_text(changed)
            done = subprocess.run([*arguments.cargo.split(), *command.split()[1:], test], cwd=ROOT, env=environment, capture_output=True, text=True)
        finally:
            path.write_text(whole)
        output = done.stdout + done.stderr
        if "could not compile" in output:
            survived.append(f"{what}: does not compile")
        elif not re.search(r"test result: FAILED", output):
            survived.append(f"{what}: {test} passes")
        else:
            found.append((what, test))
        print(f"{'noticed ' if found and found[-1][0] == what else 'SURVIVED'} {what}", flush=True)
    if arguments.docs:
        today = datetime.date.today()
        lines = ["| slip | test | tried |", "|---|---|---|"]
        lines += [f"| {what} | `{test}` | noticed, {today} |" for what, test in found]
        page = ROOT / "docs/reliability.md"
        start, rest = page.read_text().split("<!-- slips -->\n", 1)
        _, end = rest.split("<!-- end of slips -->", 1)
        page.write_text(f"{start}<!-- slips -->\n" + "\n".join(lines) + f"\n<!-- end of slips -->{end}")
    print(f"{len(found)} of {len(chosen)} noticed")
    print("\n".join(survived), file=sys.stderr)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
