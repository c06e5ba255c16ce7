//! `argand plan`: which method and how many features, before anything is sketched.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use argand::plan::{Goal, Plan, Request};
use argand::{Argument, Error, Method, OwnedRows, Polynomial, Spec};
use indicatif::{HumanCount, ProgressBar};

use crate::failure::Failure;
use crate::inputs::{self, KernelArguments};
use crate::output::{self, AtomicFile};
use crate::selection::{FeatureArguments, quoted};
use crate::{on_threads, print};

/// Choose a method and a number of features for the rows of a file.
///
/// Predicts the relative error of the kernel matrix for every method from a sample of the rows, measures on this machine how
/// long the features of a million such rows take, and recommends a sketch. With --target-error, each method gets the fewest
/// features that reach it, and the shortest time for features and fit together wins; with --features, the fastest method within 5 % of
/// the lowest error wins. Exits with 2 if no method reaches the goal.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to sketch, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    #[command(flatten)]
    kernel: KernelArguments,

    #[command(flatten)]
    goal: GoalArguments,

    /// The most seconds that the features of a million rows may take.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time_budget: Option<f64>,

    /// Methods to choose from [default: those of the paper, and chains].
    #[arg(long, value_name = "M,...", value_delimiter = ',')]
    method: Vec<Method>,

    /// The most features to consider for a target error.
    #[arg(long, value_name = "D", default_value_t = Request::DEFAULT_MAX_FEATURES, allow_negative_numbers = true)]
    max_features: usize,

    /// Read only the first rows [default: all].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    rows: Option<usize>,

    /// Seed of the recommended sketch, and of the choice of rows.
    #[arg(long, value_name = "S", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,

    /// Save the recommended sketch, with columns and scaling, for `argand transform --spec` and `argand fit --spec`.
    #[arg(long, value_name = "FILE")]
    save_spec: Option<PathBuf>,

    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,

    /// Write the plan as a page for a browser: charts of every method at several numbers of features, to pick and copy from.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    tables: FeatureArguments,
}

/// Exactly one of the two.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct GoalArguments {
    /// The relative error of the kernel matrix to reach.
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    target_error: Option<f64>,

    /// The number of features to use.
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    features: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  argand plan train.npy --degree 3 --target-error 0.05
  argand plan train.npy --degree 3 --features 2048 --time-budget 10
  argand plan train.npy --degree 3 --target-error 0.05 --save-spec sketch.json --json > plan.json
  argand plan train.csv --labels class --scaling unit --features 1024 --save-spec sketch.json
  argand plan train.csv --target-error 0.05 --report plan.html    charts of every method, in a browser
  argand plan image.npy text.npy --target-error 0.1               two inputs: their tensor product

The predicted error is the root mean square over sketches: a typical sketch is better.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.rows == Some(0) {
        return Err(Failure::Input("--rows: expected at least 1, got 0".to_owned()));
    }
    let goal = match (arguments.goal.target_error, arguments.goal.features) {
        (Some(target), _) => Goal::Error(target),
        (None, features) => Goal::Features(features.unwrap_or(0)),
    };
    let prepared = arguments.tables.open::<f32>(&arguments.inputs, None)?;
    let (kernel, dims) = arguments.kernel.polynomial(prepared.inputs.columns())?;
    let recipe = prepared.recipe(Spec::new(dims.clone()).with_kernel(kernel));
    let mut inputs = prepared.inputs;
    let mut request = Request::new(kernel, dims, goal);
    if !arguments.method.is_empty() {
        request.methods.clone_from(&arguments.method);
    }
    request.time_budget = arguments.time_budget;
    request.max_features = arguments.max_features;
    request.memory_limit = arguments.tables.table.limit();
    request.seed = arguments.seed;
    request.sampling.seed = arguments.seed;
    // Reject a wrong request before reading the file.
    request.validate().map_err(|error| Failure::argument(&error))?;
    if let Some(path) = arguments.save_spec.as_deref() {
        output::check_free("--save-spec", path, arguments.inputs.iter())?;
    }
    if let Some(path) = arguments.report.as_deref() {
        output::check_free("--report", path, arguments.inputs.iter().chain(arguments.save_spec.iter()))?;
    }
    let report_file = arguments.report.as_deref().map(AtomicFile::create).transpose()?;
    let spec_file = arguments.save_spec.as_deref().map(AtomicFile::create).transpose()?;
    inputs.show_progress("");
    let sample = inputs.sample(arguments.rows, arguments.seed)?;
    request.sampling.population = Some(sample.total);
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    let plans = on_threads(arguments.threads, || {
        let views = sample.views()?;
        let scaled = recipe.preparation.apply(&views)?;
        let views = scaled.as_ref().map_or(views, |tables| tables.iter().map(OwnedRows::view).collect());
        let make =
            |request: &Request| argand::plan::plan(request, &views, |step| spinner.set_message(step.to_string()));
        let plan = make(&request)?;
        let others = if report_file.is_some() { other_sizes(&request, &plan) } else { Vec::new() };
        let others = others.iter().map(make).collect::<Result<Vec<Plan>, Error>>()?;
        Ok((plan, others))
    });
    spinner.finish_and_clear();
    let files = || inputs::names(&arguments.inputs);
    let (plan, others) = plans?.map_err(|error| match error {
        Error::Overflow { .. } => Failure::Input(format!(
            "{}: the kernel of these rows overflows; scale them to unit norm, or use a smaller --gamma",
            files()
        )),
        Error::Invalid { argument: Argument::Input(_), expected, received } => {
            Failure::Input(format!("{}: expected {expected}, got {received}", files()))
        }
        other => Failure::argument(&other),
    })?;
    let columns: Vec<String> = request.inputs.as_slice().iter().map(usize::to_string).collect();
    let about = format!(
        "Kernel {} on {} rows x {} columns",
        crate::info::kernel(&recipe.spec),
        HumanCount(sample.total as u64),
        columns.join(" + "),
    );
    if let (Some(mut file), Some(path)) = (report_file, arguments.report.as_deref()) {
        let plans: Vec<String> = std::iter::once(&plan).chain(&others).map(Plan::to_json).collect();
        let of_spec =
            |spec: &str| Spec::from_json(spec).map_or_else(|error| error.to_string(), |spec| command(&spec, arguments));
        let page = argand_figure::plan_page(&plans.iter().map(String::as_str).collect::<Vec<_>>(), &about, of_spec);
        let page = page.map_err(Failure::Other)?;
        let written = file.write_all(page.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
    if arguments.json {
        print(&plan.to_json())?;
    } else {
        let mut text = format!("{about}\n\n{plan}");
        if let Some(best) = plan.best() {
            let _ = writeln!(text, "  {}", command(&best.spec, arguments));
        }
        print(&text)?;
    }
    plan.recommended.map_err(|unmet| Failure::Input(unmet.to_string()))?;
    if let (Some(best), Some(mut file), Some(path)) = (plan.best(), spec_file, arguments.save_spec.as_deref()) {
        let text = recipe.with_spec(best.spec.clone()).to_json();
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
    Ok(())
}

/// Requests for the methods of a plan with other numbers of features, for charts: from a quarter of the recommended number to twice as many.
fn other_sizes(request: &Request, plan: &Plan) -> Vec<Request> {
    let Some(middle) = plan.best().or(plan.candidates.first()).map(|candidate| candidate.spec.features) else {
        return Vec::new();
    };
    let methods: Vec<Method> = plan.candidates.iter().map(|candidate| candidate.spec.method).collect();
    let sizes = [middle / 4, middle / 2, middle, middle.saturating_mul(2)].map(|size| size.next_multiple_of(2));
    let of_size = |size: usize| {
        let mut request = request.clone();
        (request.goal, request.methods) = (Goal::Features(size), methods.clone());
        request
    };
    let wanted = sizes.into_iter().filter(|&size| size > 0 && request.goal != Goal::Features(size));
    wanted.map(of_size).filter(|request| request.validate().is_ok()).collect()
}

/// The command that applies a spec.
fn command(spec: &Spec, arguments: &Arguments) -> String {
    let (mut text, inputs) = ("argand transform".to_owned(), &arguments.inputs);
    for path in inputs {
        let _ = write!(text, " {}", quoted(&path.display().to_string()));
    }
    let _ = write!(text, " -o z.npy --method {} --features {}", spec.method, spec.features);
    let Some(Polynomial { degree, gamma, coef0 }) = spec.kernel.polynomial() else {
        unreachable!("plans are about polynomial kernels")
    };
    if inputs.len() == 1 {
        let _ = write!(text, " --degree {degree}");
    }
    for (name, value, default) in [("gamma", gamma, 1.0), ("coef0", coef0, 0.0)] {
        if value != default {
            let _ = write!(text, " --{name} {value}");
        }
    }
    if spec.seed != 0 {
        let _ = write!(text, " --seed {}", spec.seed);
    }
    text + &arguments.tables.flags()
}
