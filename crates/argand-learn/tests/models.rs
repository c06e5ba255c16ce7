//! Models against their definitions, against exact Gaussian processes, and against refits from scratch.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "rounding is meant")]

use argand::rng::{Purpose, Stream};
use argand::theory::kernel_matrix;
use argand::{Advice, Argument, Error, FileFault, Polynomial, Rows, Spec};
use argand_learn::{
    Archive, ClassTargets, ExactGp, GpClassifier, GpOptions, GpPrediction, GpRegressor, Gram, Labels, Model, Pipeline,
    Preparation, PreparationFit, Recipe, Ridge, RidgePath, Scaling, Targets, Variances, largest,
    mean_negative_log_likelihood, read_model,
};
use argand_linalg::{Cholesky, Matrix};

/// Rows in f64, their exact features of degree 2 in f32, targets and classes.
struct Problem {
    recipe: Recipe,
    features: Vec<f32>,
    kernel: Vec<f64>,
    targets: Vec<f64>,
    classes: Vec<u32>,
    rows: usize,
}

const DIM: usize = 25;

/// (½⟨x, y⟩ + ½)² in four dimensions: 25 products of two of (x, 1)/√2 are exact features.
fn problem(rows: usize) -> Problem {
    let mut stream = Stream::new(4, Purpose::Sample, 7, 0);
    let x: Vec<f64> = (0..rows * 4).map(|_| 2.0 * stream.uniform() - 1.0).collect();
    let kernel = Polynomial { degree: 2, gamma: 0.5, coef0: 0.5 };
    let mut spec = Spec::polynomial(4).with_degree(2).with_features(DIM).with_method("gaussian".parse().unwrap());
    spec.kernel = kernel.into();
    let (mut features, mut targets, mut classes) = (vec![], vec![], vec![]);
    for row in x.chunks(4) {
        let extended: Vec<f64> = row.iter().chain(&[1.0]).map(|value| value * 0.5_f64.sqrt()).collect();
        features.extend(extended.iter().flat_map(|a| extended.iter().map(move |b| (a * b) as f32)));
        targets.push(row[0] * row[1] + 0.3 * row[2] + 0.1 * stream.uniform() + 5.0);
        classes.push(if row[0] * row[1] > 0.2 { 2 } else { u32::from(row[3] > 0.0) });
    }
    let kernel = kernel_matrix(&spec, &[Rows::new(&x, rows, 4).unwrap().into()]).unwrap();
    Problem { recipe: spec.into(), features, kernel, targets, classes, rows }
}

impl Problem {
    fn table(&self, rows: std::ops::Range<usize>) -> Rows<'_, f32> {
        Rows::new(&self.features[rows.start * DIM..rows.end * DIM], rows.len(), DIM).unwrap()
    }

    fn gram(&self, targets: Targets, rows: std::ops::Range<usize>) -> Gram {
        let mut gram = Gram::new(&self.recipe, targets).unwrap();
        gram.update(self.table(rows.clone()), self.labels(targets, rows)).unwrap();
        gram
    }

    fn labels(&self, targets: Targets, rows: std::ops::Range<usize>) -> Labels<'_> {
        match targets {
            Targets::Values(_) => Labels::Values(Rows::new(&self.targets[rows.clone()], rows.len(), 1).unwrap()),
            _ => Labels::Classes(&self.classes[rows]),
        }
    }

    /// Kernel of the first `known` rows, of the others with them, and of the others with themselves.
    fn parts(&self, known: usize) -> [Vec<f64>; 3] {
        let part = |rows: std::ops::Range<usize>| -> Vec<f64> {
            rows.flat_map(|row| &self.kernel[row * self.rows..][..known]).copied().collect()
        };
        let own = (known..self.rows).map(|row| self.kernel[row * self.rows + row]).collect();
        [part(0..known), part(known..self.rows), own]
    }
}

fn assert_close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{what} {at}: {got} {want}");
    }
}

/// With exact features the Gaussian process on them is the exact one: means, variances and likelihood.
#[test]
fn classification_on_exact_features_is_exact() {
    let problem = problem(150);
    let [kernel, cross, own] = problem.parts(100);
    let gram = problem.gram(Targets::ClassesApart(3), 0..100);
    for options in [GpOptions::default(), GpOptions { alpha: 0.05, variance: Some(2.0) }] {
        let model = GpClassifier::fit(&gram, &options).unwrap();
        let exact = ExactGp::classes(&kernel, &problem.classes[..100], 3, &options).unwrap();
        let (got, want) = (model.predict(problem.table(100..150)).unwrap(), exact.predict(&cross, &own).unwrap());
        assert_close(&got.means, &want.means, 1e-4, "mean");
        assert_close(&got.variances, &want.variances, 1e-4, "variance");
        assert_eq!(model.means(problem.table(100..150)).unwrap(), got.means);
        let likelihoods = [model.log_marginal_likelihood(), exact.log_marginal_likelihood()];
        assert!((likelihoods[0] - likelihoods[1]).abs() < 1e-4 * likelihoods[1].abs(), "{likelihoods:?}");
        // A few variances are large and a few small, so that neither a constant nor zeros would pass.
        assert!(want.variances.iter().fold(0.0_f64, |most, v| most.max(*v)) > 0.1);
        assert_eq!(GpClassifier::from_archive(model.to_archive()).unwrap(), model);
    }
}

#[test]
fn regression_on_exact_features_is_exact() {
    let problem = problem(150);
    let [kernel, cross, own] = problem.parts(100);
    let gram = problem.gram(Targets::Values(1), 0..100);
    let fitted = GpRegressor::fit(&gram, None).unwrap();
    for variances in [Variances { kernel: 2.0, noise: 0.1 }, fitted.variances()] {
        let model = GpRegressor::fit(&gram, Some(variances)).unwrap();
        let exact = ExactGp::values(&kernel, &problem.targets[..100], variances).unwrap();
        let (got, want) = (model.predict(problem.table(100..150)).unwrap(), exact.predict(&cross, &own).unwrap());
        assert_close(&got.means, &want.means, 1e-4, "mean");
        assert_close(&got.variances, &want.variances, 1e-4, "variance");
        let likelihoods = [model.log_marginal_likelihood(), exact.log_marginal_likelihood()];
        assert!((likelihoods[0] - likelihoods[1]).abs() < 1e-3 * likelihoods[1].abs(), "{likelihoods:?}");
    }
    assert_eq!(GpRegressor::from_archive(fitted.to_archive()).unwrap(), fitted);
    // The fitted variances are a maximum of the likelihood in both directions.
    let Variances { kernel, noise } = fitted.variances();
    for (more_kernel, more_noise) in [(1.2, 1.0), (0.8, 1.0), (1.0, 1.1), (1.0, 0.9), (1.5, 1.5), (0.6, 0.6)] {
        let variances = Variances { kernel: kernel * more_kernel, noise: noise * more_noise };
        let other = GpRegressor::fit(&gram, Some(variances)).unwrap();
        assert!(other.log_marginal_likelihood() < fitted.log_marginal_likelihood(), "{variances:?}");
    }
    // Uniform noise on [0, 0.1] has the variance 1/1200.
    assert!((2e-4..3e-3).contains(&noise), "{noise}");
}

#[test]
fn probabilities_sum_up_and_know_what_is_certain() {
    let prediction = GpPrediction {
        columns: 3,
        means: vec![5.0, -5.0, -5.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        variances: vec![1e-6, 1e-6, 1e-6, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0],
    };
    let probabilities = prediction.probabilities(20_000, 1).unwrap();
    for row in probabilities.chunks(3) {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    let certain = 5_f64.exp() / (5_f64.exp() + 2.0 * (-5_f64).exp());
    assert!((probabilities[0] - certain).abs() < 1e-4);
    // By symmetry a third each, and every probability has a standard deviation below ½.
    probabilities[3..6].iter().for_each(|p| assert!((p - 1.0 / 3.0).abs() < 4.0 * 0.5 / 20_000_f64.sqrt(), "{p}"));
    // More variance, less certainty than the softmax of the means.
    let softmax = 1_f64.exp() / (1_f64.exp() + 2.0);
    assert!(probabilities[6] > 0.34 && probabilities[6] < softmax - 0.02, "{}", probabilities[6]);
    assert_eq!(probabilities, prediction.probabilities(20_000, 1).unwrap());
    assert_ne!(probabilities, prediction.probabilities(20_000, 2).unwrap());
    assert_eq!(largest(&probabilities, 3)[0], 0);
    let likelihood = mean_negative_log_likelihood(&[0.5, 0.5, 0.25, 0.75], &[0, 1]).unwrap();
    assert!((likelihood - (2_f64.ln() - 0.75_f64.ln()) / 2.0).abs() < 1e-12);
    assert!(prediction.probabilities(0, 0).is_err());
}

/// Labels are those of the largest probabilities, whether a margin decides or the draws do.
#[test]
fn labels_are_those_of_the_largest_probabilities() {
    let mut stream = Stream::new(8, Purpose::Sample, 7, 0);
    for (spread, columns) in [(0.5, 3), (4.0, 7), (40.0, 26)] {
        let rows = 400;
        let means = (0..rows * columns).map(|_| spread * stream.complex_normal().0).collect();
        let variances = (0..rows * columns).map(|_| 2.0 * stream.uniform()).collect();
        let prediction = GpPrediction { columns, means, variances };
        let expected = largest(&prediction.probabilities(1000, 0).unwrap(), columns);
        assert_eq!(prediction.labels(1000, 0).unwrap(), expected, "{spread}");
    }
    assert!(GpPrediction { columns: 2, means: vec![], variances: vec![] }.labels(0, 0).is_err());
    let problem = problem(120);
    let features = problem.table(80..120);
    for alpha in [1e-8, 1e-3, 0.5, 1e3] {
        let options = GpOptions { alpha, variance: None };
        let model = GpClassifier::fit(&problem.gram(Targets::ClassesApart(3), 0..80), &options).unwrap();
        let expected = largest(&Model::predict(&model, features).unwrap(), 3);
        assert_eq!(model.labels(features).unwrap(), expected, "{alpha}");
        assert_eq!(model.labels(problem.table(80..80)).unwrap(), [0_u32; 0]);
    }
}

/// The kernel variances that the paper's authors had, from the numbers of rows in the classes.
#[test]
fn label_transform_gives_the_authors_variances() {
    let letter = [
        789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792, 783, 753, 803, 783, 758, 748, 796, 813, 764,
        752, 787, 786, 734,
    ];
    let transform = ClassTargets::new(&letter.map(f64::from), 0.001).unwrap();
    assert!((transform.variance - 3.711).abs() < 2e-3, "{}", transform.variance);
    assert!(ClassTargets::new(&[3.0, 0.0], 0.1).unwrap_err().to_string().contains("none of class 1"));
    for alpha in [0.0, 9e15, 1e300, f64::NAN] {
        assert!(ClassTargets::new(&[3.0, 2.0], alpha).unwrap_err().to_string().starts_with("alpha"));
    }
    assert!(ClassTargets::new(&[3.0, 2.0], 8.99e15).unwrap().noise.iter().all(|&noise| noise > 0.0));
}

/// Ridge by its normal equations with an unpenalised column of ones, solved by elimination.
fn naive_ridge(problem: &Problem, rows: &[usize], targets: &[f64], lambda: f64) -> Vec<f64> {
    let size = DIM + 1;
    let phi = |row: usize, i: usize| if i < DIM { f64::from(problem.features[row * DIM + i]) } else { 1.0 };
    let mut system: Vec<Vec<f64>> = (0..size)
        .map(|i| {
            let products = (0..size).map(|j| {
                let penalty = if i == j && i < DIM { lambda } else { 0.0 };
                rows.iter().map(|&row| phi(row, i) * phi(row, j)).sum::<f64>() + penalty
            });
            products.chain([rows.iter().map(|&row| phi(row, i) * targets[row]).sum()]).collect()
        })
        .collect();
    for pivot in 0..size {
        let best = (pivot..size).max_by(|&a, &b| system[a][pivot].abs().total_cmp(&system[b][pivot].abs())).unwrap();
        system.swap(pivot, best);
        let chosen = system[pivot].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
            let factor = row[pivot] / chosen[pivot];
            row.iter_mut().zip(&chosen).skip(pivot).for_each(|(value, chosen)| *value -= factor * chosen);
        }
    }
    (0..size).map(|i| system[i][size] / system[i][i]).collect()
}

fn predict_naive(problem: &Problem, solution: &[f64], row: usize) -> f64 {
    let features = &problem.features[row * DIM..][..DIM];
    solution[DIM] + features.iter().zip(solution).map(|(&phi, weight)| f64::from(phi) * weight).sum::<f64>()
}

#[test]
fn ridge_solves_the_normal_equations() {
    let problem = problem(60);
    let rows: Vec<usize> = (0..40).collect();
    let gram = problem.gram(Targets::Values(1), 0..40);
    let path = RidgePath::new(&gram).unwrap();
    for lambda in [1e-3, 0.1, 10.0] {
        let naive = naive_ridge(&problem, &rows, &problem.targets, lambda);
        let want: Vec<f64> = (40..60).map(|row| predict_naive(&problem, &naive, row)).collect();
        for model in [Ridge::fit(&gram, lambda).unwrap(), path.at(lambda).unwrap()] {
            assert_close(&model.predict(problem.table(40..60)).unwrap(), &want, 2e-3, "prediction");
            assert_eq!(Ridge::from_archive(model.to_archive()).unwrap(), model);
        }
        // Held-out rows, by their sums alone.
        let errors = want.iter().zip(&problem.targets[40..]).map(|(got, want)| (got - want).powi(2));
        let direct = errors.sum::<f64>() / 20.0;
        let held_out = path.held_out(&problem.gram(Targets::Values(1), 40..60), lambda).unwrap();
        assert!((held_out - direct).abs() < 1e-3 * direct.max(1e-2), "{held_out} {direct}");
        // Each row left out, by a refit without it.
        let refits = rows.iter().map(|&left_out| {
            let others: Vec<usize> = rows.iter().copied().filter(|&row| row != left_out).collect();
            let solution = naive_ridge(&problem, &others, &problem.targets, lambda);
            (predict_naive(&problem, &solution, left_out) - problem.targets[left_out]).powi(2)
        });
        let refitted = refits.sum::<f64>() / 40.0;
        let mut left_out = path.leave_one_out(&[lambda]).unwrap();
        for part in [0..7, 7..40] {
            left_out.update(problem.table(part.clone()), problem.labels(Targets::Values(1), part)).unwrap();
        }
        let got = left_out.errors()[0];
        assert!((got - refitted).abs() < 1e-2 * refitted, "{got} {refitted}");
        // Degrees of freedom from their definition: how much the fit of every row follows its own target.
        let followed = rows.iter().map(|&row| {
            let mut targets = problem.targets.clone();
            targets[row] += 1.0;
            let moved = naive_ridge(&problem, &rows, &targets, lambda);
            predict_naive(&problem, &moved, row) - predict_naive(&problem, &naive, row)
        });
        let degrees = followed.sum::<f64>();
        assert!((path.degrees_of_freedom(lambda) - degrees).abs() < 1e-2 * degrees, "{degrees}");
        // Generalised cross-validation from its definition.
        let residual = rows.iter().map(|&row| (predict_naive(&problem, &naive, row) - problem.targets[row]).powi(2));
        let left = 40.0 - degrees;
        let want = 40.0 * residual.sum::<f64>() / (left * left);
        let got = path.generalised_cross_validation(lambda);
        assert!((got - want).abs() < 1e-2 * want, "{got} {want}");
    }
}

/// Penalties that explain nearly all of the targets: errors of rows that are left out are no rounding of zero. With fewer rows than features,
/// in rows that repeat, and with more.
#[test]
fn errors_are_true_for_small_penalties() {
    for (count, repeated) in [(12, false), (12, true), (60, false)] {
        let mut problem = problem(count);
        if repeated {
            problem.features.copy_within(..4 * DIM, 4 * DIM);
        }
        // Noise that features cannot explain.
        problem.targets.iter_mut().enumerate().for_each(|(row, y)| *y += (row as f64 * 2.7).sin());
        let gram = problem.gram(Targets::Values(1), 0..count);
        let path = RidgePath::new(&gram).unwrap();
        let rows: Vec<usize> = (0..count).collect();
        let mean = problem.targets.iter().sum::<f64>() / count as f64;
        for lambda in [1e-9, 1e-7, 1e-4] {
            let refits = rows.iter().map(|&left_out| {
                let others: Vec<usize> = rows.iter().copied().filter(|&row| row != left_out).collect();
                let solution = naive_ridge(&problem, &others, &problem.targets, lambda);
                (predict_naive(&problem, &solution, left_out) - problem.targets[left_out]).powi(2)
            });
            let want = refits.sum::<f64>() / count as f64;
            let mut left_out = path.leave_one_out(&[lambda, 0.0]).unwrap();
            left_out.update(problem.table(0..count), problem.labels(Targets::Values(1), 0..count)).unwrap();
            let [got, limit] = left_out.errors()[..] else { unreachable!() };
            assert!((got - want).abs() < 2e-2 * want, "{count} rows, {repeated}, λ = {lambda}: {got} {want}");
            assert!((limit - want).abs() < 0.2 * want || lambda > 1e-7, "{count} rows, {repeated}: {limit} {want}");
            // n ‖a‖²/tr², with a = (ΦΦᵀ + λI)⁻¹(y − ȳ) of centred rows: RSS/λ², and the trace on what is not constant.
            let centred = Matrix::from_fn(DIM, count, |i, row| {
                let of = |row: usize| f64::from(problem.features[row * DIM + i]);
                of(row) - rows.iter().map(|&other| of(other)).sum::<f64>() / count as f64
            });
            let kernel = Matrix::from_fn(count, count, |a, b| {
                let inner: f64 = centred.column(a).iter().zip(centred.column(b)).map(|(a, b)| a * b).sum();
                inner + 1.0 + if a == b { lambda } else { 0.0 }
            });
            let factor = Cholesky::new(kernel).unwrap();
            let solve = |right: &[f64]| factor.solve(right)[1].clone();
            let apart: Vec<f64> = problem.targets.iter().map(|y| y - mean).collect();
            let norm: f64 = solve(&apart).iter().map(|a| a * a).sum();
            let unit = |row: usize| (0..count).map(|other| f64::from(u8::from(other == row))).collect::<Vec<_>>();
            let trace: f64 =
                rows.iter().map(|&row| solve(&unit(row))[row]).sum::<f64>() - 1.0 / (count as f64 + lambda);
            let (got, want) = (path.generalised_cross_validation(lambda), count as f64 * norm / (trace * trace));
            assert!((got - want).abs() < 1e-3 * want, "{count} rows, {repeated}, λ = {lambda}: {got} {want}");
        }
    }
}

/// Features with a large mean, such as those of a column of years, and penalties that are lost in the rounding of their sums: what can be
/// told from rounding is learnt.
#[test]
fn large_means_of_features_cost_no_accuracy() {
    let rows = 300;
    let mut problem = problem(rows);
    problem.features.chunks_mut(DIM).for_each(|row| {
        row.iter_mut().for_each(|value| *value *= 1e3);
        row[DIM - 1] = 1e7;
        (row[0], row[1]) = (1e7 + row[0].round(), 1e7 - row[1].round());
    });
    let gram = problem.gram(Targets::Values(1), 0..rows);
    let labels = problem.labels(Targets::Values(1), 0..rows);
    let spread = gram.target_spreads()[0];
    for lambda in [0.0, 1e-30, 1e-6, 1e-3, 1.0, 10.0] {
        let model = Ridge::fit(&gram, lambda).unwrap();
        let fitted = model.predict(problem.table(0..rows)).unwrap();
        let error: f64 = fitted.iter().zip(&problem.targets).map(|(got, want)| (got - want).powi(2)).sum();
        assert!(error < 0.02 * spread, "λ = {lambda}: {}", error / spread);
    }
    let path = RidgePath::new(&gram).unwrap();
    let lambdas = path.lambdas();
    let mut left_out = path.leave_one_out(&lambdas).unwrap();
    left_out.update(problem.table(0..rows), labels).unwrap();
    for (lambda, error) in lambdas.iter().zip(left_out.errors()).take(12) {
        let generalised = path.generalised_cross_validation(*lambda);
        assert!(
            error < 0.02 * spread / 300.0 && generalised < 0.02 * spread / 300.0,
            "λ = {lambda}: {error} {generalised}"
        );
    }
}

/// Targets far from zero, such as times: the same variances and penalties as without the offset, in one Gram and in many.
#[test]
fn targets_far_from_zero_lose_no_digits() {
    let rows = 200;
    let models = |offset: f64| {
        let mut problem = problem(rows);
        problem.targets.iter_mut().for_each(|y| *y += offset);
        let whole = problem.gram(Targets::Values(1), 0..rows);
        let mut merged = problem.gram(Targets::Values(1), 0..70);
        merged.merge(&problem.gram(Targets::Values(1), 70..71)).unwrap();
        merged.merge(&Gram::new(&problem.recipe, Targets::Values(1)).unwrap()).unwrap();
        merged.merge(&problem.gram(Targets::Values(1), 71..rows)).unwrap();
        let mut after = problem.gram(Targets::Values(1), 100..rows);
        after.merge_after(&problem.gram(Targets::Values(1), 0..100)).unwrap();
        let mut before = problem.gram(Targets::Values(1), 0..100);
        before.merge(&problem.gram(Targets::Values(1), 100..rows)).unwrap();
        assert_eq!(after, before);
        let read = Gram::from_bytes(&whole.to_bytes()).unwrap();
        assert_eq!(read, whole);
        let other = problem.gram(Targets::Values(1), 150..rows);
        [whole, merged, after, read].map(|gram| {
            let found = GpRegressor::fit(&gram, None).unwrap().variances();
            let path = RidgePath::new(&gram).unwrap();
            let held_out = path.held_out(&other, 0.1).unwrap();
            let model = Ridge::fit(&gram, 0.1).unwrap();
            let labels = problem.labels(Targets::Values(1), 0..rows);
            let r2 = model.score(problem.table(0..rows), labels).unwrap().r2().unwrap();
            [found.noise, found.kernel, path.generalised_cross_validation(1e-3), held_out, r2]
        })
    };
    let want = models(0.0)[0];
    for offset in [0.0, 1e6, -1e9, 1.7e9] {
        for got in models(offset) {
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!((got - want).abs() < 2e-3 * want.abs(), "{offset}, number {at}: {got} {want}");
            }
        }
    }
    let mut problem = problem(rows);
    problem.targets.iter_mut().for_each(|y| *y = 0.1);
    let mut equal = problem.gram(Targets::Values(1), 0..70);
    equal.merge(&problem.gram(Targets::Values(1), 70..rows)).unwrap();
    assert_eq!(equal.target_spreads(), [0.0]);
}

#[test]
fn ridge_classifies_by_one_and_minus_one() {
    let problem = problem(300);
    let gram = problem.gram(Targets::Classes(3), 0..200);
    let apart = problem.gram(Targets::ClassesApart(3), 0..200);
    let (model, same) = (Ridge::fit(&gram, 0.01).unwrap(), Ridge::fit(&apart, 0.01).unwrap());
    assert_close(model.weights(), same.weights(), 1e-3, "weights");
    assert!(model.is_classifier() && model.columns() == 3);
    let rows: Vec<usize> = (0..200).collect();
    let signs: Vec<f64> = problem.classes.iter().map(|&class| if class == 2 { 1.0 } else { -1.0 }).collect();
    let naive = naive_ridge(&problem, &rows, &signs, 0.01);
    let scores = model.predict(problem.table(200..300)).unwrap();
    for row in 200..300 {
        let (got, want) = (scores[(row - 200) * 3 + 2], predict_naive(&problem, &naive, row));
        assert!((got - want).abs() < 1e-3, "{got} {want}");
    }
    let right = largest(&scores, 3).iter().zip(&problem.classes[200..]).filter(|(a, b)| a == b).count();
    assert!(right > 85, "{right} of 100");
    // Held-out and left-out errors are those of 1 and −1, too.
    let lambda = 0.1;
    let path = RidgePath::new(&gram).unwrap();
    let sign = |row: usize, class: u32| if problem.classes[row] == class { 1.0 } else { -1.0 };
    let (mut held_out, mut left_out) = (0.0, 0.0);
    for class in 0..3 {
        let signs: Vec<f64> = (0..300).map(|row| sign(row, class)).collect();
        let naive = naive_ridge(&problem, &rows, &signs, lambda);
        held_out += (200..300).map(|row| (predict_naive(&problem, &naive, row) - signs[row]).powi(2)).sum::<f64>();
        // Leverages by definition: how much the fit of a row follows its own target.
        for &row in &rows {
            let mut moved = signs.clone();
            moved[row] += 1.0;
            let moved = naive_ridge(&problem, &rows, &moved, lambda);
            let fit = predict_naive(&problem, &naive, row);
            let leverage = predict_naive(&problem, &moved, row) - fit;
            left_out += ((signs[row] - fit) / (1.0 - leverage)).powi(2);
        }
    }
    let got = path.held_out(&problem.gram(Targets::Classes(3), 200..300), lambda).unwrap();
    assert!((got - held_out / 100.0).abs() < 1e-2 * got, "{got} {}", held_out / 100.0);
    let mut leave = path.leave_one_out(&[lambda]).unwrap();
    leave.update(problem.table(0..200), problem.labels(Targets::Classes(3), 0..200)).unwrap();
    let got = leave.errors()[0];
    assert!((got - left_out / 200.0).abs() < 1e-2 * got, "{got} {}", left_out / 200.0);
}

/// Several columns of targets are as many processes that share their variances.
#[test]
fn several_targets_have_the_likelihood_of_all_and_share_the_noise() {
    let problem = problem(120);
    let second: Vec<f64> =
        problem.targets.iter().enumerate().map(|(row, y)| 3.0 - 0.5 * y + (row % 3) as f64).collect();
    let both: Vec<f64> = problem.targets.iter().zip(&second).flat_map(|(a, b)| [*a, *b]).collect();
    let sums = |values: &[f64], columns: usize| {
        let mut gram = Gram::new(&problem.recipe, Targets::Values(columns)).unwrap();
        gram.update(problem.table(0..120), Labels::Values(Rows::new(values, 120, columns).unwrap())).unwrap();
        gram
    };
    let variances = Variances { kernel: 1.5, noise: 0.2 };
    let likelihood = |gram: &Gram| GpRegressor::fit(gram, Some(variances)).unwrap().log_marginal_likelihood();
    let apart = likelihood(&sums(&problem.targets, 1)) + likelihood(&sums(&second, 1));
    let together = likelihood(&sums(&both, 2));
    assert!((apart - together).abs() < 1e-6 * apart.abs(), "{apart} {together}");
    // The shared variances are the best for both: not those of either, and a maximum in all directions.
    let gram = sums(&both, 2);
    let best = GpRegressor::fit(&gram, None).unwrap();
    let Variances { kernel, noise } = best.variances();
    for (more_kernel, more_noise) in [(1.1, 1.0), (0.9, 1.0), (1.0, 1.05), (1.0, 0.95)] {
        let other = Variances { kernel: kernel * more_kernel, noise: noise * more_noise };
        let other = GpRegressor::fit(&gram, Some(other)).unwrap().log_marginal_likelihood();
        assert!(other < best.log_marginal_likelihood(), "{more_kernel} {more_noise}");
    }
    let [first, second] =
        [&problem.targets, &second].map(|y| GpRegressor::fit(&sums(y, 1), None).unwrap().variances().noise);
    assert!(first < noise && noise < second, "{first} {noise} {second}");
}

/// One variance is given, and the other is the best for it.
#[test]
fn a_given_variance_is_kept_and_the_other_is_the_best_for_it() {
    let problem = problem(100);
    let gram = problem.gram(Targets::Values(1), 0..100);
    for (kernel, noise) in [(Some(0.7), None), (None, Some(0.05))] {
        let model = GpRegressor::fit_given(&gram, kernel, noise).unwrap();
        let found = model.variances();
        assert!(kernel.is_none_or(|kernel| kernel == found.kernel) && noise.is_none_or(|noise| noise == found.noise));
        for factor in [0.9, 1.1] {
            let (mut kernel_of, mut noise_of) = (found.kernel, found.noise);
            if kernel.is_none() {
                kernel_of *= factor
            } else {
                noise_of *= factor
            }
            let other = GpRegressor::fit(&gram, Some(Variances { kernel: kernel_of, noise: noise_of })).unwrap();
            assert!(other.log_marginal_likelihood() < model.log_marginal_likelihood(), "{found:?} {factor}");
        }
        assert!(GpRegressor::fit_given(&gram, kernel.map(|_| 0.0), noise.map(|_| -1.0)).is_err());
    }
}

/// Merged sums know the squares of their targets: a model of two halves is that of the whole.
#[test]
fn merged_sums_are_those_of_all_rows() {
    let problem = problem(100);
    let whole = problem.gram(Targets::Values(1), 0..100);
    let mut merged = problem.gram(Targets::Values(1), 0..37);
    merged.merge(&problem.gram(Targets::Values(1), 37..100)).unwrap();
    let variances = Some(Variances { kernel: 1.0, noise: 0.1 });
    let [a, b] = [&whole, &merged].map(|gram| GpRegressor::fit(gram, variances).unwrap().log_marginal_likelihood());
    assert!((a - b).abs() < 1e-6 * a.abs(), "{a} {b}");
    let [a, b] = [&whole, &merged].map(|gram| RidgePath::new(gram).unwrap().generalised_cross_validation(0.1));
    assert!((a - b).abs() < 1e-3 * a, "{a} {b}");
}

/// Fewer rows than features: λ = 0 and a tiny λ give the smallest weights that fit.
#[test]
fn singular_systems_have_documented_answers() {
    let problem = problem(30);
    let gram = problem.gram(Targets::Values(1), 0..10);
    let model = Ridge::fit(&gram, 0.0).unwrap();
    let fitted = model.predict(problem.table(0..10)).unwrap();
    assert_close(&fitted, &problem.targets[..10], 1e-3, "interpolation");
    let norm = |model: &Ridge| model.weights().iter().map(|w| w * w).sum::<f64>().sqrt();
    let small = RidgePath::new(&gram).unwrap().at(1e-6).unwrap();
    assert!((norm(&model) - norm(&small)).abs() < 1e-2 * norm(&model), "{} {}", norm(&model), norm(&small));
    // As many unknowns as rows, or as features.
    for rows in [0..10, 0..30] {
        let gram = problem.gram(Targets::Values(1), rows);
        let [model, small] = [0.0, 1e-30].map(|lambda| Ridge::fit(&gram, lambda).unwrap());
        assert_close(small.weights(), model.weights(), 1e-9 * norm(&model), "weights");
    }
    assert!(Ridge::fit(&gram, -1.0).unwrap_err().to_string().starts_with("lambda"));
    assert!(Ridge::fit(&Gram::new(&problem.recipe, Targets::Values(1)).unwrap(), 1.0).is_err());
    // Gaussian processes have the identity in their system, and refuse what f64 cannot hold.
    let huge = Variances { kernel: 1e20, noise: 1e-3 };
    assert!(matches!(GpRegressor::fit(&gram, Some(huge)), Err(Error::Singular { advice: Advice::Variances, .. })));
    assert!(GpRegressor::fit(&gram, Some(Variances { kernel: 0.0, noise: 1.0 })).is_err());
    assert!(GpClassifier::fit(&gram, &GpOptions::default()).unwrap_err().to_string().starts_with("gram"));
    let apart = problem.gram(Targets::ClassesApart(3), 0..30);
    let huge = GpOptions { variance: Some(1e30), ..GpOptions::default() };
    assert!(matches!(GpClassifier::fit(&apart, &huge), Err(Error::Singular { advice: Advice::Variances, .. })));
}

/// Squares of targets beyond f64 are no equal targets, and features of zeros no singular system.
#[test]
fn numbers_without_a_likelihood_are_named() {
    let fit = |features: f32, targets: f64, variances: Option<Variances>| {
        let mut problem = problem(30);
        problem.features.iter_mut().for_each(|value| *value *= features);
        problem.targets.iter_mut().for_each(|value| *value *= targets);
        match GpRegressor::fit(&problem.gram(Targets::Values(1), 0..30), variances) {
            Ok(model) => {
                let predicted = model.predict(problem.table(0..30)).unwrap().means;
                Ok(model.log_marginal_likelihood().is_finite() && predicted.iter().all(|mean| mean.is_finite()))
            }
            Err(Error::Invalid { argument, .. }) => Err(argument),
            Err(other) => panic!("{other}"),
        }
    };
    let noise = |noise: f64| Some(Variances { kernel: 1.0, noise });
    assert_eq!([None, noise(1.0)].map(|given| fit(1.0, 1e200, given)), [Err(Argument::Labels); 2]);
    assert_eq!(fit(1.0, 1e150, noise(1e-12)), Err(Argument::Labels));
    assert_eq!(fit(0.0, 1.0, None), Err(Argument::Rows));
    for (features, targets, given) in [(1.0, 1e150, None), (1.0, 1e150, noise(1.0)), (0.0, 1.0, noise(1.0))] {
        assert_eq!(fit(features, targets, given), Ok(true));
    }
}

/// Rows that nobody scaled: products of 10⁸ and more beside a penalty and noise of about 1. Sums in f32 would drown them.
#[test]
fn long_rows_are_learnt_from_as_short_ones() {
    let mut problem = problem(150);
    let [kernel, cross, own] = problem.parts(100);
    let factor = 1e4_f32;
    problem.features.iter_mut().for_each(|value| *value *= factor);
    let square = f64::from(factor * factor);
    let [kernel, cross, own] = [kernel, cross, own].map(|part| part.iter().map(|k| k * square).collect::<Vec<f64>>());
    let gram = problem.gram(Targets::ClassesApart(3), 0..100);
    let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
    let exact = ExactGp::classes(&kernel, &problem.classes[..100], 3, &GpOptions::default()).unwrap();
    let (got, want) = (model.predict(problem.table(100..150)).unwrap(), exact.predict(&cross, &own).unwrap());
    assert_close(&got.means, &want.means, 1e-2, "mean");
    assert_close(&got.variances, &want.variances, 1e-2, "variance");
    let gram = problem.gram(Targets::Values(1), 0..100);
    let rows: Vec<usize> = (0..100).collect();
    let naive = naive_ridge(&problem, &rows, &problem.targets, 1.0);
    let want: Vec<f64> = (100..150).map(|row| predict_naive(&problem, &naive, row)).collect();
    let path = RidgePath::new(&gram).unwrap();
    for model in [Ridge::fit(&gram, 1.0).unwrap(), path.at(1.0).unwrap()] {
        assert_close(&model.predict(problem.table(100..150)).unwrap(), &want, 1e-3, "prediction");
    }
    // The penalties to choose from grow with the features.
    assert!(path.lambdas()[24] > square && path.lambdas()[0] < 1.0);
}

/// Many more features than dimensions: the rounding of what does not vary is no signal.
#[test]
fn noise_is_found_among_redundant_features() {
    let mut spec = Spec::polynomial(4).with_degree(2).with_features(400);
    spec = spec.with_coef0(1.0);
    let recipe = Recipe::from(spec);
    let mut stream = Stream::new(5, Purpose::Sample, 7, 0);
    let x: Vec<f32> = (0..600 * 4).map(|_| (stream.uniform() - 0.5) as f32).collect();
    let y: Vec<f64> = x
        .chunks(4)
        .map(|x| f64::from(x[0] * x[1] + 0.3 * x[2]) + 0.1 * stream.complex_normal().0 * 2_f64.sqrt())
        .collect();
    let mut gram = Gram::new(&recipe, Targets::Values(1)).unwrap();
    let pipeline = recipe.pipeline::<f32>().unwrap();
    let inputs = [Rows::new(&x, 600, 4).unwrap().into()];
    let summed = pipeline.for_each_block(&inputs, |range, features| {
        gram.update(features, Labels::Values(Rows::new(&y[range.clone()], range.len(), 1)?))
    });
    summed.unwrap();
    let noise = GpRegressor::fit(&gram, None).unwrap().variances().noise.sqrt();
    assert!((0.09..0.11).contains(&noise), "{noise}");
}

/// The options are chosen by the likelihood of other rows.
#[test]
fn hyper_parameters_are_chosen_on_other_rows() {
    let problem = problem(300);
    let gram = problem.gram(Targets::ClassesApart(3), 0..200);
    let candidates = [1e-3, 1e-2, 0.3].map(|alpha| GpOptions { alpha, variance: None });
    let loss = |model: &GpClassifier| -> Result<f64, Error> {
        Ok(model.score(problem.table(200..300), Labels::Classes(&problem.classes[200..]))?.loss())
    };
    let (best, losses) = GpClassifier::select(&gram, &candidates, loss).unwrap();
    let least = (0..3).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap();
    assert_eq!(best.options().alpha, candidates[least].alpha);
    assert!(losses.iter().all(|loss| losses[least] <= *loss));
    assert!(GpClassifier::select(&gram, &[], loss).is_err());
}

/// The handwritten digits 0 to 3, non-negative and of unit norm.
fn digits() -> (Vec<f32>, Vec<u32>) {
    let bytes: &[u8] = include_bytes!("../../argand-paper/data/digits.u8");
    let (pixels, labels) = bytes.split_at(1797 * 64);
    let chosen: Vec<usize> = (0..1797).filter(|&row| labels[row] < 4).collect();
    let rows = chosen.iter().flat_map(|&row| &pixels[row * 64..][..64]).map(|&pixel| f32::from(pixel)).collect();
    (rows, chosen.iter().map(|&row| u32::from(labels[row])).collect())
}

/// On digits the Gaussian process on a sketch approaches the exact one as D grows, at the rate 1/√D.
#[test]
fn sketches_converge_to_the_exact_process() {
    let (x, y) = digits();
    let (train, test) = (300, 100);
    let mut fit = PreparationFit::new(Scaling::NonNegative, &[64]);
    fit.update(&[Rows::new(&x[..train * 64], train, 64).unwrap().into()]).unwrap();
    let preparation = fit.finish().unwrap();
    let spec = |features: usize, seed: u64| {
        let mut spec = Spec::polynomial(64).with_degree(3).with_features(features).with_seed(seed);
        spec.kernel = Polynomial { degree: 3, gamma: 0.5, coef0: 0.5 }.into();
        spec
    };
    // Prepared by hand for the exact kernel.
    let least: Vec<f32> =
        (0..64).map(|column| (0..train).map(|row| x[row * 64 + column]).fold(f32::INFINITY, f32::min)).collect();
    let mut prepared: Vec<f32> = x[..(train + test) * 64].to_vec();
    for row in prepared.chunks_mut(64) {
        row.iter_mut().zip(&least).for_each(|(value, least)| *value -= least);
        let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        row.iter_mut().for_each(|value| *value /= norm);
    }
    let all = train + test;
    let kernel = kernel_matrix(&spec(2, 0), &[Rows::new(&prepared, all, 64).unwrap().into()]).unwrap();
    let part = |rows: std::ops::Range<usize>| -> Vec<f64> {
        rows.flat_map(|row| &kernel[row * all..][..train]).copied().collect()
    };
    let own: Vec<f64> = (train..all).map(|row| kernel[row * all + row]).collect();
    let exact = ExactGp::classes(&part(0..train), &y[..train], 4, &GpOptions::default()).unwrap();
    let want = exact.predict(&part(train..all), &own).unwrap();
    let distance = |features: usize| -> [f64; 3] {
        let seeds = 4;
        let mut distances = [0.0; 3];
        for seed in 0..seeds {
            let recipe = Recipe::new(preparation.clone(), spec(features, seed));
            let pipeline = recipe.pipeline::<f32>().unwrap();
            let mut gram = Gram::new(&recipe, Targets::ClassesApart(4)).unwrap();
            on_features(&pipeline, &x[..train * 64], |range, features| {
                gram.update(features, Labels::Classes(&y[range])).unwrap();
            });
            let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
            let mut got = None;
            on_features(&pipeline, &x[train * 64..all * 64], |_, features| {
                got = Some(model.predict(features).unwrap())
            });
            let got = got.unwrap();
            let root_mean_square = |a: &[f64], b: &[f64]| {
                (a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / a.len() as f64).sqrt()
            };
            distances[0] += root_mean_square(&got.means, &want.means) / seeds as f64;
            distances[1] += root_mean_square(&got.variances, &want.variances) / seeds as f64;
            distances[2] += (model.log_marginal_likelihood() - exact.log_marginal_likelihood()).abs() / seeds as f64;
        }
        distances
    };
    let (few, many) = (distance(128), distance(2048));
    println!("distances to the exact process, D = 128 and 2048: {few:?} {many:?}");
    for (quantity, (few, many)) in ["means", "variances", "likelihood"].iter().zip(few.iter().zip(many)) {
        // A factor of 4 is expected from sixteen times the features.
        assert!(many < few / 2.5, "{quantity}: {few} {many}");
    }
    let spread = want.means.iter().map(|mean| mean * mean).sum::<f64>() / want.means.len() as f64;
    assert!(many[0] < 0.15 * spread.sqrt(), "{} {}", many[0], spread.sqrt());
}

fn on_features(pipeline: &Pipeline<f32>, x: &[f32], mut consume: impl FnMut(std::ops::Range<usize>, Rows<'_, f32>)) {
    let rows = Rows::new(x, x.len() / 64, 64).unwrap();
    pipeline
        .for_each_block(&[rows.into()], |range, features| {
            consume(range, features);
            Ok(())
        })
        .unwrap();
}

/// The bytes of a model with another header.
fn with_header(bytes: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let header = change(std::str::from_utf8(&bytes[16..16 + length]).unwrap());
    let mut changed = [&bytes[..12], &u32::try_from(header.len()).unwrap().to_le_bytes(), header.as_bytes()].concat();
    changed.extend_from_slice(&bytes[16 + length..bytes.len() - 4]);
    let sum = crc32fast::hash(&changed).to_le_bytes();
    [changed, sum.to_vec()].concat()
}

#[test]
fn damaged_models_are_errors() {
    let problem = problem(60);
    let gram = problem.gram(Targets::ClassesApart(3), 0..60);
    let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
    // A file of one kind is not read as another.
    for (error, expected, found) in [
        (Ridge::from_archive(model.to_archive()).unwrap_err(), "ridge", "gp-classifier"),
        (GpClassifier::from_archive(gram.to_archive()).unwrap_err(), "gp-classifier", "gram"),
        (read_model(gram.to_archive()).unwrap_err(), "ridge, gp-classifier, gp-regressor, softmax", "gram"),
    ] {
        let fault = FileFault::Kind { expected: expected.to_owned(), found: found.to_owned() };
        assert_eq!(error, Error::Archive(fault));
    }
    assert_eq!(model.recipe().preparation, Preparation::none());
    // Lengths that contradict each other, under a checksum that is right.
    let ridge = Ridge::fit(&gram, 1.0).unwrap();
    for (archive, from, to) in [
        (ridge.to_archive(), "\"intercepts\":[", "\"intercepts\":[0.5,"),
        (model.to_archive(), "\"means\":[", "\"means\":[0.5,"),
        (model.to_archive(), "\"features\":25", "\"features\":26"),
    ] {
        let bytes = with_header(&archive.to_bytes(), |header| {
            assert!(header.contains(from), "{header}");
            header.replace(from, to)
        });
        let archive = Archive::from_bytes(&bytes).unwrap();
        assert!(Ridge::from_archive(archive.clone()).is_err() && GpClassifier::from_archive(archive).is_err());
    }
    let empty = |name: &str, header: &str| {
        let start = header.find(name).unwrap() + name.len();
        let end = start + header[start..].find(']').unwrap();
        format!("{}{}", &header[..start], &header[end..])
    };
    let bytes = with_header(&ridge.to_archive().to_bytes(), |header| {
        empty("\"intercepts\":[", header).replace("\"length\":75", "\"length\":0")
    });
    let error = Archive::from_bytes(&bytes).and_then(Ridge::from_archive).unwrap_err();
    assert!(matches!(error, Error::Archive(_)), "{error}");
}
