//! What models learn from the features of a plan's finalists.

use argand::plan::{Candidate, Plan, Validation};
use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, FeatureMap, Input, Method, OwnedRows, Scalar};
use argand_linalg::{Cholesky, Matrix, View, ViewMut, product};
use rayon::prelude::*;

use crate::gram::{Labels, check_classes};

/// The fewest rows that are split into some to learn from and others to judge by.
pub const FEWEST_LABELLED_ROWS: usize = 20;

/// The most rows to judge by.
const JUDGED_ROWS: usize = 8192;

/// Bounds on the rows to learn from, and about how many multiplications the largest fit may take.
const TRAINING_ROWS: [usize; 2] = [1024, 8192];
const MULTIPLICATIONS: f64 = 1e11;

/// Penalties λ, in means of ‖φ(x)‖²: the best one counts.
const PENALTIES: [f64; 4] = [1e-3, 1e-2, 1e-1, 1.0];

/// Rows whose features are computed together, and columns whose products are.
const BLOCK_ROWS: usize = 1024;
const BLOCK_COLUMNS: usize = 128;

/// Fits a ridge model on the features of the best candidate of every kind and ranks the plan by its error on other rows.
///
/// `inputs` are rows like those of the plan, scaled alike, with one label each. Up to half of them, at most 8,192, judge the models; the others, as
/// many as a few seconds for the one with most features allow, are what they learn from. All candidates see the same rows: which one is better depends on how many there are.
/// Landmarks may be among them.
///
/// # Errors
/// [`Error::Invalid`] for fewer than [`FEWEST_LABELLED_ROWS`] rows, labels of another number of rows, only one class or numbers that are all alike;
/// as [`FeatureMap::transform_into`].
///
/// ```
/// use argand::plan::{Goal, Request, plan};
/// use argand::{InputDims, Polynomial, Rows};
/// use argand_learn::{Labels, fit_finalists};
/// let x: Vec<f32> = (0..400 * 4).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect();
/// let classes: Vec<u32> = x.chunks(4).map(|x| u32::from(x[0] * x[1] > 0.0)).collect(); // no linear model tells them apart
/// let inputs = [Rows::new(&x, 400, 4)?.into()];
/// let kernel = Polynomial { degree: 2, gamma: 1.0, coef0: 0.1 };
/// let mut plan = plan(&Request::new(kernel, InputDims::Same(4), Goal::Features(64)), &inputs, |_| {})?;
/// fit_finalists(&mut plan, &inputs, Labels::Classes(&classes), 0, |_| {})?;
/// assert!(plan.best().unwrap().validation.unwrap().error < 0.1);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn fit_finalists<T: Scalar>(
    plan: &mut Plan,
    inputs: &[Input<'_, T>],
    labels: Labels<'_>,
    seed: u64,
    mut step: impl FnMut(Method),
) -> Result<(), Error> {
    let rows = inputs.first().map_or(0, Input::rows);
    if labels.rows() != rows {
        return Err(Error::invalid(Argument::Labels, format!("one for each of the {rows} rows"), labels.rows()));
    }
    if rows < FEWEST_LABELLED_ROWS {
        let expected = format!("at least {FEWEST_LABELLED_ROWS} rows to fit the candidates");
        return Err(Error::invalid(Argument::Labels, expected, rows));
    }
    let targets = Columns::of(labels)?;
    let order = shuffled(rows, seed);
    let (judged, training) = order.split_at((rows / 2).min(JUDGED_ROWS));
    let most = plan.finalists().map(|candidate| candidate.spec.features).max().unwrap_or(1);
    let training = &training[..training.len().min(training_rows(most))];
    plan.fit_finalists(|candidate| {
        step(candidate.spec.method);
        judge(candidate, inputs, &targets, training, judged)
    })
}

/// Targets as numbers, row by row: 1 and −1 for classes, and values around their means, divided by what makes the largest ±1.
struct Columns {
    values: Vec<f32>,
    columns: usize,
    classes: bool,
}

impl Columns {
    fn of(labels: Labels<'_>) -> Result<Self, Error> {
        let alike = |what: &str| Err(Error::invalid(Argument::Labels, what, "only one"));
        #[allow(clippy::cast_possible_truncation, reason = "features have the same precision")]
        match labels {
            Labels::Classes(classes) => {
                let columns = classes.iter().max().map_or(0, |&most| most as usize + 1);
                check_classes(classes, columns)?;
                if classes.iter().all(|&class| class == classes[0]) {
                    return alike("at least two classes");
                }
                let row = |&class: &u32| (0..columns).map(move |at| if at == class as usize { 1.0 } else { -1.0 });
                Ok(Self { values: classes.iter().flat_map(row).collect(), columns, classes: true })
            }
            Labels::Values(rows) => {
                let all = || (0..rows.rows()).map(|row| rows.row(row));
                if let Some(value) = all().flatten().find(|&&value| !(value as f32).is_finite()) {
                    return Err(Error::invalid(Argument::Labels, "finite numbers in the range of f32", value));
                }
                if all().all(|row| row == rows.row(0)) {
                    return alike("numbers that vary");
                }
                // In f32, numbers far from zero would lose what tells them apart.
                let mean = |column: usize| all().map(|row| row[column]).sum::<f64>() / rows.rows() as f64;
                let means: Vec<f64> = (0..rows.columns()).map(mean).collect();
                let centred = || all().flat_map(|row| row.iter().zip(&means).map(|(value, mean)| value - mean));
                let largest = centred().map(f64::abs).fold(0.0, f64::max);
                let values = centred().map(|value| (value / largest) as f32).collect();
                Ok(Self { values, columns: rows.columns(), classes: false })
            }
        }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// Those of some rows.
    fn take(&self, rows: &[usize]) -> Vec<f32> {
        rows.iter().flat_map(|&row| self.row(row)).copied().collect()
    }
}

/// The numbers below `rows` in random order.
fn shuffled(rows: usize, seed: u64) -> Vec<usize> {
    // Factors 0 to 2 are samples of rows and splits of files.
    let mut stream = Stream::new(seed, Purpose::Sample, 3, 0);
    let mut order: Vec<usize> = (0..rows).collect();
    for place in (1..rows).rev() {
        order.swap(place, stream.below(u32::try_from(place + 1).unwrap_or(u32::MAX)) as usize);
    }
    order
}

/// The rows to learn from with so many features: n·D·min(n, D) multiplications are affordable.
fn training_rows(features: usize) -> usize {
    let features = features as f64;
    let rows = (MULTIPLICATIONS / features).sqrt().max(MULTIPLICATIONS / (features * features));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of rows")]
    (rows as usize).clamp(TRAINING_ROWS[0], TRAINING_ROWS[1])
}

fn judge<T: Scalar>(
    candidate: &Candidate,
    inputs: &[Input<'_, T>],
    targets: &Columns,
    training: &[usize],
    judged: &[usize],
) -> Result<Validation, Error> {
    let sketch = candidate.spec.sketch::<T>()?;
    let features = candidate.spec.features;
    let transform = |rows: &[usize]| -> Result<Vec<f32>, Error> {
        let tables: Vec<OwnedRows<T>> = inputs.iter().map(|input| OwnedRows::take(input, rows)).collect();
        let values = sketch.transform(&tables.iter().map(OwnedRows::view).collect::<Vec<_>>())?;
        #[allow(clippy::cast_possible_truncation, reason = "single precision is enough to compare models")]
        Ok(values.into_iter().map(|value| value.to_f64() as f32).collect())
    };
    let models = Models::fit(transform(training)?, features, targets.take(training), targets.columns);
    // The error of every model on every row.
    let mut errors = vec![Vec::with_capacity(judged.len()); models.weights.len()];
    for rows in judged.chunks(BLOCK_ROWS) {
        let (values, wanted) = (transform(rows)?, targets.take(rows));
        for (errors, predicted) in errors.iter_mut().zip(models.predict(values)) {
            let rows = predicted.chunks(targets.columns).zip(wanted.chunks(targets.columns));
            errors.extend(rows.map(|(got, want)| row_error(got, want, targets.classes)));
        }
    }
    let spread = if targets.classes { 1.0 } else { variance(&targets.take(judged), targets.columns) };
    let best = errors.iter().map(|errors| score(errors, spread, targets.classes)).min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((error, standard_error)) = best else { unreachable!("the largest penalty always has a model") };
    Ok(Validation { error, standard_error, training_rows: training.len(), rows: judged.len() })
}

/// Whether a class is wrong, or the squared error of numbers.
fn row_error(got: &[f32], want: &[f32], classes: bool) -> f64 {
    if classes {
        let largest =
            |values: &[f32]| (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b]).then(b.cmp(&a)));
        return f64::from(u8::from(largest(got) != largest(want)));
    }
    got.iter().zip(want).map(|(got, want)| f64::from(got - want).powi(2)).sum()
}

/// The variance of all columns together.
fn variance(values: &[f32], columns: usize) -> f64 {
    let rows = (values.len() / columns) as f64;
    let of_column = |column: usize| {
        let values = values.iter().skip(column).step_by(columns).map(|&value| f64::from(value));
        let mean = values.clone().sum::<f64>() / rows;
        values.map(|value| (value - mean).powi(2)).sum::<f64>() / rows
    };
    (0..columns).map(of_column).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// The error and its standard error.
fn score(errors: &[f64], spread: f64, classes: bool) -> (f64, f64) {
    let rows = errors.len() as f64;
    let mean = errors.iter().sum::<f64>() / rows;
    let deviation = (errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / rows).sqrt() / rows.sqrt();
    if classes {
        return (mean, deviation);
    }
    let relative = (mean / spread).sqrt();
    // The root of a mean varies by its slope.
    (relative, if relative > 0.0 { deviation / (2.0 * relative * spread) } else { 0.0 })
}

/// Ridge models for every penalty, on features around their mean.
struct Models {
    means: Vec<f32>,
    intercepts: Vec<f32>,
    /// For every penalty, D × columns, one column after another.
    weights: Vec<Vec<f32>>,
}

impl Models {
    /// Solves with D × D or n × n products, whichever are smaller: w = (ZᵀZ + λI)⁻¹Zᵀy = Zᵀ(ZZᵀ + λI)⁻¹y.
    fn fit(mut values: Vec<f32>, features: usize, mut targets: Vec<f32>, columns: usize) -> Self {
        let rows = targets.len() / columns;
        let (means, intercepts) = (centre(&mut values, features), centre(&mut targets, columns));
        let z = View::by_rows(&values, rows, features);
        let y = View::by_rows(&targets, rows, columns);
        let primal = features <= rows;
        let size = rows.min(features);
        let products = self_products(if primal { z } else { z.transpose() }, size);
        let right: Vec<f64> = if primal {
            let mut moments = vec![0.0; size * columns];
            product(ViewMut::by_columns(&mut moments, size, columns), z.transpose(), y, 1.0);
            moments.into_iter().map(f64::from).collect()
        } else {
            let column = |column: usize| targets.iter().skip(column).step_by(columns).map(|&target| f64::from(target));
            (0..columns).flat_map(column).collect()
        };
        let trace: f64 = (0..size).map(|at| f64::from(products[at * size + at])).sum();
        let solve = |penalty: &f64| -> Option<Vec<f32>> {
            let lambda = (penalty * trace / rows as f64).max(f64::MIN_POSITIVE);
            let matrix = Matrix::from_fn(size, size, |row, column| {
                f64::from(products[column * size + row]) + if row == column { lambda } else { 0.0 }
            });
            let factor = Cholesky::new(matrix).ok()?;
            let mut solved = right.clone();
            factor.solve_lower(ViewMut::by_columns(&mut solved, size, columns));
            factor.solve_upper(ViewMut::by_columns(&mut solved, size, columns));
            #[allow(clippy::cast_possible_truncation, reason = "features have the same precision")]
            let solved: Vec<f32> = solved.into_iter().map(|value| value as f32).collect();
            if primal {
                return Some(solved);
            }
            let mut weights = vec![0.0; features * columns];
            let solved = View::by_columns(&solved, size, columns);
            product(ViewMut::by_columns(&mut weights, features, columns), z.transpose(), solved, 1.0);
            Some(weights)
        };
        Self { weights: PENALTIES.iter().filter_map(solve).collect(), means, intercepts }
    }

    /// The targets that every model predicts, row by row.
    fn predict(&self, mut values: Vec<f32>) -> impl Iterator<Item = Vec<f32>> + '_ {
        let (features, columns) = (self.means.len(), self.intercepts.len());
        for row in values.chunks_exact_mut(features) {
            row.iter_mut().zip(&self.means).for_each(|(value, mean)| *value -= mean);
        }
        self.weights.iter().map(move |weights| {
            let rows = values.len() / features;
            let mut predicted = vec![0.0; rows * columns];
            let weights = View::by_columns(weights, features, columns);
            let out = ViewMut::by_rows(&mut predicted, rows, columns);
            product(out, View::by_rows(&values, rows, features), weights, 1.0);
            for row in predicted.chunks_exact_mut(columns) {
                row.iter_mut().zip(&self.intercepts).for_each(|(value, intercept)| *value += intercept);
            }
            predicted
        })
    }
}

/// Subtracts the means of the columns, and returns them.
fn centre(values: &mut [f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0_f64; columns];
    for row in values.chunks_exact(columns) {
        sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
    }
    let rows = (values.len() / columns) as f64;
    #[allow(clippy::cast_possible_truncation, reason = "a mean of single-precision numbers")]
    let means: Vec<f32> = sums.iter().map(|sum| (sum / rows) as f32).collect();
    for row in values.chunks_exact_mut(columns) {
        row.iter_mut().zip(&means).for_each(|(value, mean)| *value -= mean);
    }
    means
}

/// AᵀA of a matrix with so many columns, on all threads.
fn self_products(a: View<'_, f32>, columns: usize) -> Vec<f32> {
    let mut products = vec![0.0; columns * columns];
    let blocks = ViewMut::by_columns(&mut products, columns, columns).column_blocks(BLOCK_COLUMNS);
    blocks.into_par_iter().for_each(|(range, block)| product(block, a.transpose(), a.columns(range), 1.0));
    products
}

#[cfg(test)]
mod tests {
    use argand::plan::{Goal, Request, plan};
    use argand::{InputDims, Kernel, Rows};

    use super::*;

    fn rows(count: usize, columns: usize) -> Vec<f32> {
        let mut stream = Stream::new(5, Purpose::Sample, 9, 0);
        #[allow(clippy::cast_possible_truncation, reason = "test data")]
        (0..count * columns).map(|_| stream.uniform() as f32 - 0.5).collect()
    }

    fn planned(x: &[f32], columns: usize, goal: Goal) -> Plan {
        let inputs = [Rows::new(x, x.len() / columns, columns).unwrap().into()];
        let mut request = Request::new(Kernel::Gaussian { length_scale: 0.7 }, InputDims::Same(columns), goal);
        (request.sampling.measured_rows, request.sampling.sketches) = (32, 12);
        plan(&request, &inputs, |_| {}).unwrap()
    }

    /// With more rows than features and with fewer: both ways give the model of the definition.
    #[test]
    fn both_ways_solve_the_same_system() {
        let (n, columns) = (30, 2);
        for features in [5, 60] {
            let (z, y) = (rows(n, features), rows(n, columns));
            let models = Models::fit(z.clone(), features, y.clone(), columns);
            assert_eq!(models.weights.len(), PENALTIES.len());
            // The gradient of Σ(y − z w − b)² + λ‖w‖² vanishes.
            let (mut centred, mut targets) = (z, y);
            centre(&mut centred, features);
            centre(&mut targets, columns);
            let trace: f64 = centred.iter().map(|&value| f64::from(value).powi(2)).sum();
            for (weights, penalty) in models.weights.iter().zip(PENALTIES) {
                for (column, weights) in weights.chunks(features).enumerate() {
                    let residual = |row: usize| {
                        let z = &centred[row * features..][..features];
                        let fitted: f64 = z.iter().zip(weights).map(|(&z, &w)| f64::from(z) * f64::from(w)).sum();
                        f64::from(targets[row * columns + column]) - fitted
                    };
                    let residuals: Vec<f64> = (0..n).map(residual).collect();
                    for (at, &weight) in weights.iter().enumerate() {
                        let along: f64 = residuals
                            .iter()
                            .enumerate()
                            .map(|(row, r)| r * f64::from(centred[row * features + at]))
                            .sum();
                        let gradient = along - penalty * trace / n as f64 * f64::from(weight);
                        assert!(gradient.abs() < 1e-3, "{features} features, penalty {penalty}: {gradient}");
                    }
                }
            }
        }
    }

    /// Classes that follow a product of two columns: one candidate of every kind is fitted, and errors are far below a guess.
    #[test]
    fn labels_rank_a_plan() {
        let x = rows(600, 4);
        let classes: Vec<u32> = x.chunks(4).map(|x| u32::from(x[0] * x[1] > 0.0)).collect();
        let inputs = [Rows::new(&x, 600, 4).unwrap().into()];
        let mut plan = planned(&x, 4, Goal::Features(128));
        let mut steps = Vec::new();
        fit_finalists(&mut plan, &inputs, Labels::Classes(&classes), 0, |method| steps.push(method)).unwrap();
        assert_eq!(steps.len(), 3, "sums, Fourier features and landmarks");
        let judged: Vec<Validation> = plan.candidates.iter().filter_map(|candidate| candidate.validation).collect();
        assert!(judged.is_sorted_by(|a, b| a.error <= b.error) && judged.len() == 3, "{judged:?}");
        for Validation { error, standard_error, training_rows, rows } in judged {
            assert!(error < 0.2 && (rows, training_rows) == (300, 300), "{error}");
            let binomial = (error * (1.0 - error) / 300.0).sqrt();
            assert!((standard_error - binomial).abs() < 1e-12, "{standard_error} {binomial}");
        }
        // Labels that say nothing are guessed, whatever the features: no row that judges was learnt from.
        let noise: Vec<u32> = rows(600, 1).iter().map(|&value| u32::from(value > 0.0)).collect();
        fit_finalists(&mut plan, &inputs, Labels::Classes(&noise), 0, |_| {}).unwrap();
        let guessed = plan.candidates[0].validation.unwrap().error;
        assert!((0.4..0.6).contains(&guessed), "{guessed}");
    }

    #[test]
    fn numbers_are_judged_in_their_own_spread() {
        let x = rows(400, 3);
        let values: Vec<f64> = x.chunks(3).map(|x| 1e3 + 50.0 * f64::from(x[0] * x[1])).collect();
        let inputs = [Rows::new(&x, 400, 3).unwrap().into()];
        let mut plan = planned(&x, 3, Goal::Features(64));
        fit_finalists(&mut plan, &inputs, Labels::Values(Rows::new(&values, 400, 1).unwrap()), 0, |_| {}).unwrap();
        let best = plan.best().unwrap().validation.unwrap();
        assert!(best.error < 0.2 && best.standard_error > 0.0 && best.standard_error < best.error, "{best:?}");
    }

    /// The error is relative: the same for values that are shifted and scaled.
    #[test]
    fn numbers_far_from_zero_keep_their_differences() {
        let x = rows(400, 3);
        let inputs = [Rows::new(&x, 400, 3).unwrap().into()];
        let mut plan = planned(&x, 3, Goal::Features(64));
        let mut error = |shift: f64, scale: f64| {
            let values: Vec<f64> = x.chunks(3).map(|x| shift + scale * f64::from(x[0] * x[1])).collect();
            fit_finalists(&mut plan, &inputs, Labels::Values(Rows::new(&values, 400, 1).unwrap()), 0, |_| {}).unwrap();
            plan.best().unwrap().validation.unwrap().error
        };
        let expected = error(0.0, 1.0);
        for (shift, scale) in [(1.7e9, 200.0), (1e9, 1.0), (0.0, 1e-42), (0.0, 1e38)] {
            let found = error(shift, scale);
            assert!((found - expected).abs() < 1e-4, "{shift} + {scale} f: {found}, not {expected}");
        }
    }

    #[test]
    fn labels_that_cannot_judge_name_themselves() {
        let x = rows(40, 3);
        let inputs = [Rows::new(&x, 40, 3).unwrap().into()];
        let mut plan = planned(&x, 3, Goal::Features(8));
        let mut message =
            |labels: Labels<'_>| fit_finalists(&mut plan, &inputs, labels, 0, |_| {}).unwrap_err().to_string();
        assert!(message(Labels::Classes(&[0, 1])).starts_with("labels: expected one for each of the 40 rows"));
        assert!(message(Labels::Classes(&[1; 40])).contains("two classes"));
        let same = [2.0; 40];
        assert!(message(Labels::Values(Rows::new(&same, 40, 1).unwrap())).contains("vary"));
        let huge = [1e300; 40];
        assert!(message(Labels::Values(Rows::new(&huge, 40, 1).unwrap())).contains("f32"));
        let few = [Rows::new(&x[..30], 10, 3).unwrap().into()];
        let short = fit_finalists(&mut plan, &few, Labels::Classes(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1]), 0, |_| {});
        assert!(short.unwrap_err().to_string().contains("at least 20 rows"));
    }

    /// More features leave time for fewer rows.
    #[test]
    fn the_work_of_a_fit_is_bounded() {
        assert_eq!([256, 1 << 20].map(training_rows), [8192, 1024]);
        for features in [1024, 4096, 16384] {
            let rows = training_rows(features);
            let work = rows as f64 * features as f64 * rows.min(features) as f64;
            assert!(work <= 1.01 * MULTIPLICATIONS, "{features}: {work}");
        }
    }
}
