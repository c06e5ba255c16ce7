"""Mistakes put into the code, one at a time: a test must fail for each.

    python scripts/slips.py [--only PATTERN] [--list] [--docs]

A slip is a place in a file, where «» marks an expression, the expression of the mistake, and the test that should notice it. All slips are
compiled at once, each behind the environment variable ARGAND_SLIP; every test must pass without and fail with its slip. Files are restored
after the build; a file with changes that are not committed is refused. A slip whose place is not there any more is a failure, too: the list must
follow the code.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Programs of tests: the package, the target, and how cargo builds it together with others.
CORE, LEARN, MODELS = ("argand", "argand"), ("argand-learn", "argand_learn"), ("argand-learn", "models")
BIN, CLI = ("argand-cli", "argand"), ("argand-cli", "cli")
BUILDS = {
    "--package argand --package argand-learn --all-features --lib --test models": (CORE, LEARN, MODELS),
    "--workspace --all-features --bin argand --test cli": (BIN, CLI),
}
# The Python package as `make test-python` left it.
PYTHON = ("argand-py", "pytest")


class Slip(NamedTuple):
    what: str
    file: str
    place: str
    mistake: str
    program: tuple[str, str]
    test: str

    def parts(self) -> tuple[str, str, str]:
        """What stands before the expression, the expression, and what stands after it."""
        before, _, rest = self.place.partition("«")
        expression, _, after = rest.partition("»")
        return before, expression, after


PLAN, THEORY, LEARNING, COMMANDS = (
    "crates/argand/src/plan/", "crates/argand/src/theory/", "crates/argand-learn/src/", "crates/argand-cli/src/",
)
SUMS = "others * (all * (all - 1.0)) / (sampled * (sampled - 1.0))"

SLIPS = [Slip(*slip) for slip in [
    ("plan: memory limit ignored", PLAN + "search.rs",
     "Ok(bytes) if «bytes > self.request.memory_limit» =>", "bytes == u64::MAX", CORE, "plan::search"),
    ("plan: memory limit ignored by the command line", COMMANDS + "plan.rs",
     "«request.memory_limit = arguments.tables.table.limit()»;", "()", CLI, "plans_obey_the_memory_limit_of_the_command_line"),
    ("plan: memory limit not checked at the end", PLAN + "search.rs",
     "if «self.possible(&spec)» {\n                        if method", "true",
     CORE, "the_memory_limit_holds_for_the_sketch_that_is_found"),
    ("plan: the slowest among the close ones", PLAN + "ranking.rs",
     "error.median <= enough);\n    close.min_by(|&a, &b| «by_time(&candidates[a], &candidates[b])»)",
     "by_time(&candidates[b], &candidates[a])", CORE, "plan::ranking"),
    ("plan: time budget ignored", PLAN + "mod.rs",
     "request.seconds().is_none_or(|budget| «candidate.total_seconds() <= budget»)", "budget <= f64::MAX", CORE, "plan::tests"),
    ("plan: time budget does not count the fit", PLAN + "mod.rs",
     "request.seconds().is_none_or(|budget| «candidate.total_seconds() <= budget»)", "candidate.feature_seconds <= budget",
     CORE, "the_time_budget_is_total"),
    ("plan: predicted errors decide in spite of labels", PLAN + "mod.rs",
     "«ranking::rank_fitted(self.goal, &mut self.candidates)»", "ranking::rank(self.goal, &mut self.candidates)",
     CORE, "gaussian_kernels_are_planned_and_judged"),
    ("plan: candidates judged by rows they learnt from", LEARNING + "finalists.rs",
     "let (judged, training) = «order.split_at((rows / 2).min(JUDGED_ROWS))»;", "(&order[..rows / 2], &order[..rows / 2])",
     LEARN, "labels_rank_a_plan"),
    ("allocation: learning shares as the kernel does", "crates/argand/src/fit/allocation.rs",
     "match «self.aim» {\n            Aim::Kernel =>", "Aim::Kernel", CORE, "learning_wants_higher_powers"),
    ("plan: target met by the estimate", PLAN + "search.rs",
     "list.into_iter().zip(errors).find(|(_, error)| «error.interval()[1] <= target»)", "error.relative <= target",
     CORE, "a_target_is_reached_with_confidence"),
    ("plan: time of a fit in proportion to D", PLAN + "timing.rs",
     "«features.powi(2)» * (self.rows + 2.0 / 3.0 * features) / self.rate", "features",
     CORE, "times_grow_with_the_features"),
    ("plan: dense timing not extrapolated", PLAN + "timing.rs",
     "features: «per_row * self.rows * part»", "per_row * self.rows",
     CORE, "times_grow_with_the_features"),
    ("theory: diagonal not extrapolated", THEORY + "error.rs",
     f"«{SUMS} + itself * all / sampled»", f"{SUMS} + itself", CORE, "sums_of_a_population_are_extrapolated_apart"),
    ("theory: n²/r² for n(n-1)/r(r-1)", THEORY + "error.rs",
     f"«{SUMS} + itself * all / sampled»", "others * (all * all) / (sampled * sampled) + itself * all / sampled",
     CORE, "sums_of_a_population_are_extrapolated_apart"),
    ("theory: no finite-population factor", THEORY + "error.rs",
     "let missing = «1.0 - rows as f64 / self.population as f64»;", "1.0",
     CORE, "the_standard_error_is_that_of_a_finite_population"),
    ("theory: the first rows instead of random ones", THEORY + "pairs.rs",
     "«order.swap(position, position + stream.below(left) as usize)»;", "_ = stream.below(left)",
     CORE, "rows_are_chosen_at_random"),
    ("sparse rows: repeated columns overwritten", "crates/argand/src/lanes.rs",
     "«body[column][row] += value * root_gamma»", "body[column][row] = value * root_gamma",
     CORE, "repeated_columns_are_summed"),
    ("verify: duplicates overwritten", "crates/argand/src/verify.rs",
     "«dense[column] += value.to_f64()»", "dense[column] = value.to_f64()", CORE, "repeated_columns_are_added"),
    ("verify: the command never disagrees", COMMANDS + "verify.rs",
     "report.scores().any(|z| «z.is_nan() || z.abs() > bound»)", "z.is_nan() && z.abs() > bound",
     BIN, "the_command_disagrees_where_theory_and_sketches_do"),
    ("ridge: degrees of freedom off by one", LEARNING + "ridge.rs",
     "«1.0» + self.eigen.values.iter()", "0.0", MODELS, "ridge_solves_the_normal_equations"),
    ("ridge: held-out errors lose the class shift", LEARNING + "ridge.rs",
     "let constant = «shift - offset»;", "-offset", MODELS, "ridge_classifies_by_one_and_minus_one"),
    ("ridge: left-out errors lose the class shift", LEARNING + "ridge.rs",
     "error += ((scale * target + «shift» - mean", "0.0", MODELS, "ridge_classifies_by_one_and_minus_one"),
    ("ridge: few rows not centred", LEARNING + "few_rows.rs",
     "f64::from(rows[row * dim + i]) - «means[i]»", "0.0", LEARN, "ridge_of_few_rows_is_that_of_their_sums"),
    ("gp: likelihood of several targets counts the determinant once", LEARNING + "gp/regressor.rs",
     "-0.5 * (residual + «columns as f64» * each)", "1.0",
     MODELS, "several_targets_have_the_likelihood_of_all_and_share_the_noise"),
    ("gp: noise of several targets", LEARNING + "gp/regressor.rs",
     "((total - explained) / («rows * columns»)).max(least)", "rows",
     MODELS, "several_targets_have_the_likelihood_of_all_and_share_the_noise"),
    ("gp: labels from bounds of variances that are too narrow", LEARNING + "gp/labels.rs",
     "let most = known().copied().fold(f64::INFINITY, f64::min) * («ratio * SLACK»);", "1.0",
     LEARN, "variances_that_are_not_known_may_decide"),
    ("gram: a merge forgets squared targets", LEARNING + "gram/mod.rs",
     "(&mut self.target_squares, «&other.target_squares»),", "&*Box::leak(Box::new(vec![0.0; other.target_squares.len()]))",
     MODELS, "merged_sums_are_those_of_all_rows"),
    ("fit: penalty chosen on training rows", COMMANDS + "fit/work.rs",
     'let other = self.gram(«validation», false, "validation ")?;', "self.training",
     CLI, "penalties_and_noise_are_chosen_on_validation_rows"),
    ("fit: alpha chosen on training rows", COMMANDS + "fit/work.rs",
     "Ok(self.score(model, «validation»)?.loss())", "self.training",
     CLI, "penalties_and_noise_are_chosen_on_validation_rows"),
    ("fit: scaling learnt from held-out rows", COMMANDS + "fit/mod.rs",
     'let mut pass = «training».pass(Some(saved), task, "scaling ")?;',
     "{ let mut all = training.clone(); all.part = Part::All; &*Box::leak(Box::new(all)) }",
     CLI, "scaling_is_learnt_without_the_held_out_rows"),
    ("fit: classes sorted as text", COMMANDS + "dataset.rs",
     "«names.sort_by_key(|name| (name.parse::<i64>().unwrap_or(i64::MAX), name.clone()))»;", "names.sort()",
     CLI, "classes_that_are_numbers_are_in_the_order_of_numbers"),
    ("evaluate: likelihood without the noise", LEARNING + "score.rs",
     "found.variances.iter().map(|latent| latent + «noise»).collect()", "0.0",
     CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("evaluate: likelihood without 2π", LEARNING + "score.rs",
     "(«std::f64::consts::TAU * variance»).ln()", "*variance", CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("evaluate: r² not centred", LEARNING + "score.rs",
     "self.target_squares - «self.targets * self.targets / self.rows as f64»;", "0.0",
     CLI, "scores_of_numbers_are_those_of_their_definitions"),
    ("sample: the first rows are kept", COMMANDS + "inputs.rs",
     "«self.stream.below(u32::try_from(self.total + 1).unwrap_or(u32::MAX)) as usize»", "self.total",
     BIN, "a_sample_is_of_the_whole_file"),
    ("csv: fields of a line not counted (fuzzing)", COMMANDS + "table/csv.rs",
     "if «self.record.len() != self.fields» {", "self.record.len() > self.fields", BIN, "mutated_files_are_answered"),
    ("tables: memory of a row not checked", COMMANDS + "table/mod.rs",
     "if «row_bytes > self.budget» {", "row_bytes == u64::MAX",
     CLI, "hostile_files_take_no_more_memory_than_allowed"),
    ("python: plan's population is its sample", "crates/argand-py/python/argand/_plan.py",
     "population=«tables[0].shape[0]»,", "chosen[0].shape[0]",
     PYTHON, "test_errors_of_a_sample_are_those_of_all_rows"),
]]


def switched(chosen: list[Slip]) -> tuple[dict[Path, str], list[str]]:
    """The files with a switch in every place, and what is not there any more."""
    places, files, lost = defaultdict(list), {}, []
    for slip in chosen:
        places[slip.file, slip.place].append(slip)
    for (file, place), slips in places.items():
        path = ROOT / file
        text = files.get(path) or path.read_text()
        before, expression, after = slips[0].parts()
        found = text.count(before + expression + after)
        if found != 1:
            lost += [f"{slip.what}: its place is {found} times in {file}" for slip in slips]
            continue
        mistakes = [(SLIPS.index(slip), slip.mistake) for slip in slips]
        if file.endswith(".py"):
            number, mistake = mistakes[0]
            switch = f"({mistake} if __import__('os').environ.get('ARGAND_SLIP') == '{number}' else {expression})"
        else:
            arms = "".join(f'Ok("{number}") => {{ {mistake} }} ' for number, mistake in mistakes)
            switch = f'(match std::env::var("ARGAND_SLIP").as_deref() {{ {arms}_ => {{ {expression} }} }})'
        files[path] = text.replace(before + expression + after, before + switch + after)
    return files, lost


def build(cargo: str, programs: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """The programs of tests and the folders in which they run."""
    built = {}
    for options, targets in BUILDS.items():
        if not programs & set(targets):
            continue
        command = [*cargo.split(), "test", "--locked", *options.split(), "--no-run", "--message-format=json"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit("the slips do not compile")
        for message in map(json.loads, filter(None, done.stdout.splitlines())):
            if message.get("executable") and message["profile"]["test"]:
                folder = Path(message["manifest_path"]).parent
                built[folder.name, message["target"]["name"]] = (message["executable"], str(folder))
    return built


def noticed(command: list[str], folder: str, slip: str) -> bool:
    """Whether a test fails; or too much memory, which ends the tests of the command line, is taken."""
    environment = {**os.environ, "RUST_BACKTRACE": "0", "ARGAND_SLIP": slip}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if re.search(r"^running 0 tests|no tests ran", output, re.MULTILINE):
        sys.exit(f"no such test: {' '.join(command)}")
    return done.returncode != 0


def document(found: list[Slip]) -> None:
    """Writes the table in docs/reliability.md; slips that were not tried now keep what it says of them."""
    page = ROOT / "docs/reliability.md"
    start, rest = page.read_text().split("<!-- slips -->\n", 1)
    table, end = rest.split("<!-- end of slips -->", 1)
    before = dict(re.findall(r"^\| (.+?) \| `.+?` \| (.+?) \|$", table, re.MULTILINE))
    tried = {slip.what: f"noticed, {datetime.date.today()}" for slip in found}
    lines = ["| slip | test | tried |", "|---|---|---|"]
    lines += [f"| {slip.what} | `{slip.test}` | {tried.get(slip.what, before.get(slip.what, 'not yet'))} |" for slip in SLIPS]
    page.write_text(f"{start}<!-- slips -->\n" + "\n".join(lines) + f"\n<!-- end of slips -->{end}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="slips whose description has this regular expression")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--cargo", default="cargo", help="how cargo is called")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="a Python that has the package")
    parser.add_argument("--docs", action="store_true", help="write the table to docs/reliability.md")
    arguments = parser.parse_args()
    chosen = [slip for slip in SLIPS if re.search(arguments.only, slip.what)]
    if arguments.list:
        print("\n".join(f"{slip.what}: {slip.test}" for slip in chosen))
        return 0
    for slip in chosen:
        if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", slip.file], cwd=ROOT).returncode:
            sys.exit(f"{slip.file} has changes; commit them first")
    files, survived = switched(chosen)
    whole = {path: path.read_text() for path in files}
    found, passed = [], set()
    try:
        for path, text in files.items():
            path.write_text(text)
        programs = build(arguments.cargo, {slip.program for slip in chosen})
        for slip in chosen:
            if any(lost.startswith(f"{slip.what}:") for lost in survived):
                continue
            if slip.program == PYTHON:
                command, folder = [arguments.python, "-m", "pytest", "--quiet", "tests", "-k", slip.test], str(ROOT / "crates/argand-py")
            else:
                program, folder = programs[slip.program]
                command = [program, slip.test]
            if slip.test not in passed and noticed(command, folder, ""):
                survived.append(f"{slip.what}: {slip.test} fails without it")
                continue
            passed.add(slip.test)
            if noticed(command, folder, str(SLIPS.index(slip))):
                found.append(slip)
            else:
                survived.append(f"{slip.what}: {slip.test} passes")
            print(f"{'noticed ' if slip in found else 'SURVIVED'} {slip.what}", flush=True)
    finally:
        for path, text in whole.items():
            path.write_text(text)
    if arguments.docs:
        document(found)
    print(f"{len(found)} of {len(chosen)} noticed")
    print("\n".join(survived), file=sys.stderr)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
