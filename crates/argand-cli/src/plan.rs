//! `argand plan`: which method and how many features, before anything is sketched.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use argand::fit::{Aim, Allocation, Fit};
use argand::plan::{Candidate, Goal, Plan, Request};
use argand::{Argument, Error, Kernel, Method, OwnedRows, Polynomial, Rows, Spec};
use argand_figure::{Figure, Mark, Panel, Scale, Series, Style};
use argand_learn::{FEWEST_LABELLED_ROWS, Labels, Recipe, fit_finalists};
use indicatif::{HumanCount, ProgressBar};

use crate::dataset::{Classes, Dataset, LabelSource, Part, Task};
use crate::failure::Failure;
use crate::fit::TaskKind;
use crate::inputs::{self, KernelArguments, Reservoir, Sample};
use crate::output::{self, AtomicFile};
use crate::selection::{FeatureArguments, Policy, quoted};
use crate::{on_threads, print, warn};

/// Choose a method and a number of features for the rows of a file.
///
/// Predicts the relative error of the kernel matrix for every method from a sample of the rows, measures on this machine how
/// long features and a least-squares fit on them take, and recommends a sketch. With --target-error, each method gets the fewest
/// features that reach it, and the shortest total time wins; with --time-budget, each gets the most features that can be computed and
/// fitted in it, and the lowest error wins; with --features, the fastest method within 5 % of the lowest error wins. With --labels, the best
/// method of every kind is also fitted to a sample, and what it learns decides. Exits with 2 if no method reaches the goal.
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

    /// The number of rows that features are computed of and fitted [default: those of IN].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    rows: Option<usize>,

    /// What labels are.
    #[arg(long, value_enum, default_value_t = TaskKind::Classification, requires = "labels")]
    task: TaskKind,

    /// Methods to choose from [default: all that suit the kernel].
    #[arg(long, value_name = "M,...", value_delimiter = ',')]
    method: Vec<Method>,

    /// The most features to consider for a target error.
    #[arg(long, value_name = "D", default_value_t = Request::DEFAULT_MAX_FEATURES, allow_negative_numbers = true)]
    max_features: usize,

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

    /// Write a picture of error over total time, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    tables: FeatureArguments,
}

/// What is given and what is wanted.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct GoalArguments {
    /// The relative error of the kernel matrix to reach.
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with = "features")]
    target_error: Option<f64>,

    /// The number of features to use.
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    features: Option<usize>,

    /// The most seconds for the features of all rows and a fit on them; alone, the goal is the lowest error within them.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time_budget: Option<f64>,
}

const EXAMPLES: &str = "\
Examples:
  argand plan train.npy --degree 3 --target-error 0.05
  argand plan train.npy --degree 3 --time-budget 10 --rows 1000000
  argand plan train.csv --labels class --scaling unit --kernel gaussian --length-scale 0.7 --time-budget 60 --plot plan.svg
  argand plan train.npy --degree 3 --target-error 0.05 --save-spec sketch.json --json > plan.json
  argand plan train.csv --target-error 0.05 --report plan.html    charts of every method, in a browser
  argand plan image.npy text.npy --target-error 0.1               two inputs: their tensor product

The predicted error is the root mean square over sketches; half of them have less than the median error.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let GoalArguments { target_error, features, time_budget } = arguments.goal;
    let goal = match (target_error, features, time_budget) {
        (Some(target), ..) => Goal::Error(target),
        (None, Some(features), _) => Goal::Features(features),
        (None, None, seconds) => Goal::Time(seconds.unwrap_or(0.0)),
    };
    let prepared = arguments.tables.open::<f32>(&arguments.inputs, None)?;
    let (kernel, dims) = arguments.kernel.kernel(prepared.inputs.columns())?;
    let recipe = prepared.recipe(Spec::new(dims.clone()).with_kernel(kernel.clone()));
    let (mut inputs, labels) = (prepared.inputs, prepared.labels);
    let mut request = Request::new(kernel, dims, goal);
    if !arguments.method.is_empty() {
        request.methods.clone_from(&arguments.method);
    }
    request.rows = arguments.rows;
    request.time_budget = time_budget;
    request.max_features = arguments.max_features;
    request.memory_limit = arguments.tables.table.limit();
    request.seed = arguments.seed;
    request.sampling.seed = arguments.seed;
    request.aim = if labels.is_some() { Aim::Learning } else { Aim::Kernel };
    request.labelled = labels.is_some();
    // Reject a wrong request before reading the file.
    request.validate().map_err(|error| Failure::argument(&error))?;
    if let Some(path) = &arguments.save_spec {
        output::check_free("--save-spec", path, arguments.inputs.iter())?;
    }
    if let Some(path) = &arguments.plot {
        output::check_free("--plot", path, arguments.inputs.iter().chain(&arguments.save_spec))?;
    }
    if let Some(path) = arguments.report.as_deref() {
        let others = arguments.inputs.iter().chain(&arguments.save_spec).chain(&arguments.plot);
        output::check_free("--report", path, others)?;
    }
    let report_file = arguments.report.as_deref().map(AtomicFile::create).transpose()?;
    let spec_file = arguments.save_spec.as_deref().map(AtomicFile::create).transpose()?;
    let picture = arguments.plot.as_deref().map(AtomicFile::create).transpose()?;
    let sample = match labels {
        Some(labels) => {
            drop(inputs);
            labelled_sample(arguments, labels, &recipe)?
        }
        None => {
            inputs.show_progress("");
            inputs.sample(None, arguments.seed)?
        }
    };
    request.sampling.population = Some(sample.total);
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    let plans = on_threads(arguments.threads, || {
        let plan = planned(arguments, &request, &recipe, &sample, &spinner)?;
        let others = if report_file.is_some() { other_sizes(&request, &plan) } else { Vec::new() };
        let make = |request: &Request| planned(arguments, request, &recipe, &sample, &spinner);
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
    if let (Some(mut file), Some(path)) = (picture, &arguments.plot) {
        let svg = figure(&plan, &recipe.spec).svg();
        file.write_all(svg.as_bytes()).map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
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

/// A random sample of rows with their labels.
fn labelled_sample(arguments: &Arguments, labels: LabelSource, recipe: &Recipe) -> Result<Sample<f32>, Failure> {
    let task = match arguments.task {
        TaskKind::Classification => Task::Classification(Classes::collect(&labels)?),
        TaskKind::Regression => Task::Regression,
    };
    let policy = Policy::from(&recipe.missing);
    let mut dataset = Dataset::new(&arguments.inputs, labels, Part::All, &arguments.tables.table, policy);
    dataset.progress = true;
    let mut pass = dataset.pass(None, &task, "")?;
    let rows = pass.inputs().labelled_sample_rows();
    let mut reservoir = Reservoir::<f32>::new(recipe.spec.inputs.as_slice(), rows, arguments.seed);
    let block_rows = pass.inputs().block_rows(0);
    while pass.next(block_rows)? {
        let added = pass.inputs().views().and_then(|views| reservoir.add(&views, &pass.numbers()));
        added.map_err(|error| pass.inputs().explain(error))?;
    }
    Ok(reservoir.finish())
}

/// The plan for a sample; with labels, its finalists are fitted.
fn planned(
    arguments: &Arguments,
    request: &Request,
    recipe: &Recipe,
    sample: &Sample<f32>,
    spinner: &ProgressBar,
) -> Result<Plan, Error> {
    let views = sample.views()?;
    let scaled = recipe.preparation.apply(&views)?;
    let views = scaled.as_ref().map_or(views, |tables| tables.iter().map(OwnedRows::view).collect());
    let mut plan = argand::plan::plan(request, &views, |step| spinner.set_message(step.to_string()))?;
    let numbers = &sample.labels;
    if numbers.is_empty() {
        return Ok(plan);
    }
    if numbers.len() < FEWEST_LABELLED_ROWS {
        warn(&format!("--labels: {} rows are too few to learn from; errors of the kernel decide", numbers.len()));
        return Ok(plan);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places of classes")]
    let classes: Vec<u32> = numbers.iter().map(|&number| number as u32).collect();
    let labels = match arguments.task {
        TaskKind::Classification => Labels::Classes(&classes),
        TaskKind::Regression => Labels::Values(Rows::new(numbers, numbers.len(), 1)?),
    };
    fit_finalists(&mut plan, &views, labels, request.seed, |method| spinner.set_message(format!("fitting {method}")))?;
    Ok(plan)
}

/// Error over total time, one point per candidate: of the kernel matrix and, where candidates were fitted, of validation.
fn figure(plan: &Plan, spec: &Spec) -> Figure {
    let panel = |y_label: &str, error: &dyn Fn(&Candidate) -> Option<f64>| {
        let points = plan.candidates.iter().enumerate().filter_map(|(place, candidate)| {
            let (method, best) = (candidate.spec.method, plan.recommended == Ok(place));
            let star = if best { ", recommended" } else { "" };
            let style = Style { mark: if best { Mark::Triangle } else { Mark::Dot }, ..Style::numbered(place) };
            let name = format!("{method}, {} features{star}", candidate.spec.features);
            Some(Series::new(name, style, [(candidate.total_seconds(), error(candidate)?)]))
        });
        let x_label = format!("seconds for features and fit of {} rows", plan.rows);
        let kernel = crate::info::kernel(spec);
        Panel::new(&kernel, [&x_label, y_label], [Scale::Logarithmic; 2], points.collect()).with_zeros()
    };
    let mut panels = vec![panel("median error of the kernel matrix", &|candidate| Some(candidate.error.median))];
    if plan.candidates.iter().any(|candidate| candidate.validation.is_some()) {
        panels.push(panel("validation error", &|candidate| candidate.validation.map(|of| of.error)));
    }
    let caption = format!("{}: error over total time", crate::info::kernel(spec));
    Figure { name: "plan".to_owned(), caption, columns: panels.len(), panels, note: String::new() }
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
    if let Some(path) = arguments.save_spec.as_ref().filter(|_| spec.method.looks_at_rows()) {
        // Fitted again, it would be another one.
        let _ = write!(text, " -o z.npy --spec {}", quoted(&path.display().to_string()));
        return text + &arguments.tables.flags();
    }
    let _ = write!(text, " -o z.npy --method {} --features {}", spec.method, spec.features);
    match &spec.kernel {
        Kernel::Polynomial(Polynomial { degree, gamma, coef0 }) => {
            if inputs.len() == 1 {
                let _ = write!(text, " --degree {degree}");
            }
            for (name, value, default) in [("gamma", gamma, 1.0), ("coef0", coef0, 0.0)] {
                if *value != default {
                    let _ = write!(text, " --{name} {value}");
                }
            }
        }
        Kernel::Series { coefficients } => {
            let listed: Vec<String> = coefficients.iter().map(f64::to_string).collect();
            let _ = write!(text, " --kernel series --coefficients {}", listed.join(","));
        }
        Kernel::Gaussian { length_scale } | Kernel::Exponential { length_scale } => {
            let _ = write!(text, " --kernel {} --length-scale {length_scale}", spec.kernel.name());
        }
        other => unreachable!("no option names {other}"),
    }
    if let Some(Fit::Maclaurin(Allocation { aim: Aim::Learning, .. })) = spec.fit {
        text += " --aim learning";
    }
    if spec.method == Method::Nystrom {
        text += " --landmarks uniform";
    }
    if spec.seed != 0 {
        let _ = write!(text, " --seed {}", spec.seed);
    }
    text + &arguments.tables.flags()
}
