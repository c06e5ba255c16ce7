//! Scores of examples by sketches of their gradients.

use std::path::PathBuf;
use std::sync::Arc;

use argand::Error;
use argand_cuda::Device;
use argand_figure::{Answer, Content, Exhibit, SHOWN_EXAMPLES, SHOWN_QUERIES, Scored};
use argand_learn::attribution::{self, Damping, Measure, Options, Ranked, Store};
use argand_learn::{CudaEngine, Engine};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::value_error;
use crate::running::interruptible;

/// How to score, as Python says it: measure, patterns of layers, damping, λ in its place, whether layers are joint, and the number of a GPU.
type Choices = (String, Vec<String>, f64, Option<f64>, bool, Option<usize>);

/// Examples, scores, standard errors, first and last rank within the error.
type Columns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
);

/// Numbers of queries, entries of each list, helpful and harmful entries query by query, and notes.
type Found<'py> = (Bound<'py, PyArray1<u64>>, usize, Columns<'py>, Columns<'py>, Vec<String>);

fn options((measure, layers, damping, lambda, joint, device): Choices) -> PyResult<Options> {
    let measure: Measure = measure.parse().map_err(|what| PyValueError::new_err(format!("score: {what}")))?;
    let engine = device.map(engine).transpose().map_err(value_error)?.flatten();
    let damping = lambda.map_or(Damping::Multiple(damping), Damping::Lambda);
    Ok(Options { measure, layers, damping, joint, engine, ..Options::default() })
}

/// Nothing if the GPU has no linear algebra: the processor then does it.
fn engine(number: usize) -> Result<Option<Arc<dyn Engine>>, Error> {
    let found = CudaEngine::find(&Device::open(number)?)?;
    Ok(found.map(|engine| Arc::new(engine) as Arc<dyn Engine>))
}

fn columns<'py>(py: Python<'py>, list: &[Ranked]) -> Columns<'py> {
    let numbers = |number: fn(&Ranked) -> f64| PyArray1::from_iter(py, list.iter().map(number));
    let ranks = |rank: fn(&Ranked) -> u64| PyArray1::from_iter(py, list.iter().map(rank));
    (
        ranks(|ranked| ranked.example),
        numbers(|ranked| ranked.score),
        numbers(|ranked| ranked.standard_error),
        ranks(|ranked| ranked.rank_low as u64),
        ranks(|ranked| ranked.rank_high as u64),
    )
}

/// The most helpful and the most harmful examples for every query.
#[pyfunction]
pub(crate) fn attribute<'py>(
    py: Python<'py>,
    train: PathBuf,
    queries: PathBuf,
    top: usize,
    choices: Choices,
    threads: Option<usize>,
) -> PyResult<Found<'py>> {
    let options = options(choices)?;
    let work = move || attribution::attribute(&Store::open(train)?, &Store::open(queries)?, top, &options, &mut |_| ());
    let scores = interruptible(py, threads, work)?.map_err(value_error)?;
    let [helpful, harmful] = [&scores.helpful, &scores.harmful].map(|list| columns(py, list));
    Ok((PyArray1::from_vec(py, scores.queries), scores.top, helpful, harmful, scores.notes))
}

/// The scores of all examples for all queries, and notes.
#[pyfunction]
pub(crate) fn score_matrix<'py>(
    py: Python<'py>,
    train: PathBuf,
    queries: PathBuf,
    choices: Choices,
    threads: Option<usize>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Vec<String>)> {
    let options = options(choices)?;
    let work = move || {
        let (train, queries) = (Store::open(train)?, Store::open(queries)?);
        let (scores, notes) = attribution::score_matrix(&train, &queries, &options, &mut |_| ())?;
        let count = queries.numbers().count();
        Ok((scores, count, notes))
    };
    let (scores, count, notes) = interruptible(py, threads, work)?.map_err(|error| match error {
        Error::TooLarge { needed, limit } => PyValueError::new_err(format!(
            "queries: the scores of all examples would take {needed} bytes, more than {limit}; use attribute, or fewer queries"
        )),
        other => value_error(other),
    })?;
    let examples = scores.len() / count.max(1);
    Ok((PyArray1::from_vec(py, scores).reshape([count, examples])?, notes))
}

/// What an example looks like.
#[derive(FromPyObject)]
pub(crate) enum Look {
    Text(String),
    /// Height, width, and one or three bytes for each pixel.
    Image((u32, u32, Vec<u8>)),
}

/// Number, label and look.
type Shown = (u64, Option<String>, Option<Look>);

/// Score, standard error, first and last rank within it, and the example.
type Entry = (f64, f64, usize, usize, Shown);

fn exhibit((number, label, look): Shown) -> PyResult<Exhibit> {
    let content = match look {
        None => Ok(Content::Unknown),
        Some(Look::Text(text)) => Ok(Content::Text(text)),
        Some(Look::Image((height, width, pixels))) => Content::image(width, height, &pixels),
    };
    let content = content.map_err(|what| PyValueError::new_err(format!("examples: {what}")))?;
    Ok(Exhibit { number, label, content })
}

/// Queries and examples of each of their lists that a page shows at most.
#[pyfunction]
pub(crate) fn attribution_page_limits() -> (usize, usize) {
    (SHOWN_QUERIES, SHOWN_EXAMPLES)
}

/// A page of queries with their helpful and harmful examples.
#[pyfunction]
pub(crate) fn attribution_page(
    about: &str,
    measure: &str,
    answers: Vec<(Shown, Vec<Entry>, Vec<Entry>)>,
) -> PyResult<String> {
    let scored = |(score, standard_error, low, high, example): Entry| {
        Ok(Scored { example: exhibit(example)?, score, standard_error, ranks: [low, high] })
    };
    let list = |entries: Vec<Entry>| entries.into_iter().map(scored).collect::<PyResult<Vec<_>>>();
    let answers = answers.into_iter().map(|(query, helpful, harmful)| {
        Ok(Answer { query: exhibit(query)?, helpful: list(helpful)?, harmful: list(harmful)? })
    });
    let answers = answers.collect::<PyResult<Vec<Answer>>>()?;
    Ok(argand_figure::attribution_page(about, measure, &answers))
}
