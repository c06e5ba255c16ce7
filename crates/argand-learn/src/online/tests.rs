//! Gradients, steps and training: against definitions, by hand, and across threads.

use argand::rng::{Purpose, Stream};
use argand::{Error, FeatureMap, Input, Rows, RowsMut, Scalar, Sketch, SparseRows, Spec};

use super::pooling::dot;
use super::*;
use crate::archive::Archive;
use crate::blocks::{COLUMN_BLOCK, ROW_BLOCK};
use crate::score::Score;

const POOLINGS: [Pooling; 4] = [
    Pooling { signed_sqrt: false, l2: false },
    Pooling { signed_sqrt: true, l2: false },
    Pooling { signed_sqrt: false, l2: true },
    Pooling { signed_sqrt: true, l2: true },
];

/// Standard normal numbers.
fn normals(count: usize, factor: u32) -> Vec<f32> {
    let mut stream = Stream::new(9, Purpose::Weights, factor, 0);
    (0..count).map(|_| f32::from_f64(std::f64::consts::SQRT_2 * stream.complex_normal().0)).collect()
}

fn input(values: &[f32], columns: usize) -> [Input<'_, f32>; 1] {
    [Rows::new(values, values.len() / columns, columns).unwrap().into()]
}

/// The score of a layer on rows.
fn score(layer: &SoftmaxLayer, map: &Sketch<f32>, inputs: &[Input<'_, f32>], labels: &[u32]) -> Result<Score, Error> {
    let features = map.transform(inputs)?;
    layer.score(Rows::new(&features, inputs[0].rows(), map.output_dim())?, labels)
}

/// The loss from its definition, in double precision: no matrix products, no shared code except the sketch.
struct Oracle {
    sketch: Sketch<f64>,
    pooling: Pooling,
    weights: Vec<f64>,
    biases: Vec<f64>,
    x: Vec<f64>,
    labels: Vec<u32>,
}

impl Oracle {
    fn loss(&self) -> f64 {
        let (rows, columns) = (self.labels.len(), self.sketch.output_dim());
        let x = Rows::new(&self.x, rows, self.x.len() / rows).unwrap();
        let features = self.sketch.transform(&[x.into()]).unwrap();
        let mut loss = 0.0;
        for (features, &label) in features.chunks(columns).zip(&self.labels) {
            let mut u = features.to_vec();
            if self.pooling.signed_sqrt {
                u.iter_mut().for_each(|z| *z /= (z.abs() + 1e-10).sqrt());
            }
            if self.pooling.l2 {
                let norm = u.iter().map(|z| z * z).sum::<f64>().sqrt();
                u.iter_mut().for_each(|z| *z /= norm);
            }
            let logits = self.weights.chunks(columns).zip(&self.biases);
            let logits: Vec<f64> = logits.map(|(w, b)| b + w.iter().zip(&u).map(|(w, u)| w * u).sum::<f64>()).collect();
            loss += logits.iter().map(|l| l.exp()).sum::<f64>().ln() - logits[label as usize];
        }
        loss / rows as f64
    }

    /// Central differences with respect to all numbers selected by `parameters`.
    fn gradient(&mut self, parameters: fn(&mut Self) -> &mut Vec<f64>) -> Vec<f64> {
        let step = 1e-6;
        (0..parameters(self).len())
            .map(|index| {
                let before = parameters(self)[index];
                let mut at = |value| {
                    parameters(self)[index] = value;
                    self.loss()
                };
                let slope = (at(before + step) - at(before - step)) / (2.0 * step);
                parameters(self)[index] = before;
                slope
            })
            .collect()
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Every gradient against finite differences of the definition, to 500 roundings of the largest entry: the signed
/// square root of a feature near zero magnifies its rounding.
#[test]
fn gradients_are_those_of_the_definition() {
    let (rows, dim, features, classes) = (7, 5, 16, 3);
    let spec = Spec::polynomial(dim).with_degree(3).with_features(features).with_seed(4);
    let sketch = spec.sketch::<f32>().unwrap();
    let (x, weights, biases) = (normals(rows * dim, 1), normals(classes * features, 2), normals(classes, 3));
    let labels = [0, 2, 1, 1, 0, 2, 2];
    for pooling in POOLINGS {
        let layer = SoftmaxLayer::from_parameters(features, pooling, &weights, &biases).unwrap();
        let mut gradients = Gradients::new(&layer);
        let mut of_input = vec![f32::NAN; x.len()];
        let mut tables = [RowsMut::new(&mut of_input, rows, dim).unwrap()];
        let inputs = input(&x, dim);
        let loss = layer.loss_and_gradients(&sketch, &inputs, &labels, &mut gradients, Some(&mut tables)).unwrap();
        let mut oracle = Oracle {
            sketch: spec.sketch().unwrap(),
            pooling,
            weights: widened(&weights),
            biases: widened(&biases),
            x: widened(&x),
            labels: labels.to_vec(),
        };
        assert!((loss - oracle.loss()).abs() < 1e-5 * loss, "{pooling:?}: {loss} {}", oracle.loss());
        let score = score(&layer, &sketch, &inputs, &labels).unwrap();
        assert_eq!((score.rows, score.loss()), (7, loss));
        for (name, got, expected) in [
            ("weights", gradients.weights(), oracle.gradient(|oracle| &mut oracle.weights)),
            ("biases", gradients.biases(), oracle.gradient(|oracle| &mut oracle.biases)),
            ("inputs", &of_input, oracle.gradient(|oracle| &mut oracle.x)),
        ] {
            assert_eq!(got.len(), expected.len());
            let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
            assert!(largest > 1e-3, "{name}: nothing to compare");
            for (&got, expected) in got.iter().zip(&expected) {
                let error = (f64::from(got) - expected).abs() / largest;
                assert!(error < 500.0 * f64::from(f32::EPSILON), "{pooling:?} {name}: {got} {expected}");
            }
        }
    }
}

/// More classes, rows and features than fit into one block of either kind, against plain sums.
#[test]
fn blocks_of_rows_and_columns_add_up() {
    let (rows, features, classes) = (2 * ROW_BLOCK + 3, COLUMN_BLOCK + 10, 5);
    let sketch = Spec::polynomial(3).with_degree(2).with_features(features).sketch::<f32>().unwrap();
    let (x, weights, biases) = (normals(rows * 3, 1), normals(classes * features, 2), normals(classes, 3));
    let layer = SoftmaxLayer::from_parameters(features, Pooling::default(), &weights, &biases).unwrap();
    let z = sketch.transform(&input(&x, 3)).unwrap();
    let probabilities = layer.probabilities(Rows::new(&z, rows, features).unwrap()).unwrap();
    let labels = vec![1; rows];
    let mut gradients = Gradients::new(&layer);
    layer.loss_and_gradients(&sketch, &input(&x, 3), &labels, &mut gradients, None).unwrap();
    let mut weight_gradient = vec![0.0; classes * features];
    for (row, got) in probabilities.chunks(classes).enumerate() {
        let z = &z[row * features..][..features];
        let logits: Vec<f64> = weights.chunks(features).zip(&biases).map(|(w, &b)| f64::from(b) + dot(w, z)).collect();
        let sum: f64 = logits.iter().map(|l| l.exp()).sum();
        for (class, (&got, logit)) in got.iter().zip(&logits).enumerate() {
            let p = logit.exp() / sum;
            assert!((got - p).abs() < 1e-4, "row {row}: {got} {p}");
            let residual = (p - if class == 1 { 1.0 } else { 0.0 }) / rows as f64;
            let gradient = &mut weight_gradient[class * features..][..features];
            gradient.iter_mut().zip(z).for_each(|(sum, &z)| *sum += residual * f64::from(z));
        }
    }
    let largest = weight_gradient.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (&got, expected) in gradients.weights().iter().zip(&weight_gradient) {
        assert!((f64::from(got) - expected).abs() < 1e-4 * largest, "{got} {expected}");
    }
}

/// Four steps by hand (that is, by the formulas in double precision).
#[test]
fn adam_by_hand() {
    let mut adam = Adam::new(1);
    let mut parameter = [0.5];
    let gradients = [(1.0, 0.1), (-2.0, 0.1), (0.5, 0.1), (0.0, 0.01)];
    let expected = [0.400_000_001, 0.436_610_353, 0.450_279_420, 0.451_399_106];
    for ((gradient, rate), expected) in gradients.into_iter().zip(expected) {
        adam.step(rate, &mut parameter, &[gradient]).unwrap();
        assert!((f64::from(parameter[0]) - expected).abs() < 4.0 * f64::from(f32::EPSILON), "{parameter:?}");
    }
    assert_eq!(adam.steps(), 4);
}

/// Points whose class is the sign of x₁x₂, away from the axes: no line separates them, but degree 2 does.
fn crossed(rows: usize) -> (Vec<f32>, Vec<u32>) {
    let mut stream = Stream::new(5, Purpose::Weights, 7, 0);
    let mut coordinate = || {
        let magnitude = 0.3 + 0.7 * stream.uniform();
        f32::from_f64(if stream.bits() & 1 == 0 { magnitude } else { -magnitude })
    };
    let x: Vec<f32> = (0..2 * rows).map(|_| coordinate()).collect();
    let labels = x.chunks(2).map(|x| u32::from(x[0] * x[1] > 0.0)).collect();
    (x, labels)
}

fn trainer(features: usize, options: TrainerOptions) -> Trainer {
    Trainer::new(SoftmaxLayer::new(2, features, Pooling::default()).unwrap(), options).unwrap()
}

const QUICK: TrainerOptions = TrainerOptions { batch: 8, learning_rate: 0.05, patience: 2, seed: 3 };

#[test]
fn a_separable_problem_is_learnt() {
    let (x, labels) = crossed(300);
    for pooling in POOLINGS {
        let sketch = Spec::polynomial(2).with_degree(2).with_features(64).sketch::<f32>().unwrap();
        let layer = SoftmaxLayer::new(2, 64, pooling).unwrap();
        let before = score(&layer, &sketch, &input(&x, 2), &labels).unwrap();
        assert!((before.loss() - 2_f64.ln()).abs() < 1e-6);
        let mut trainer = Trainer::new(layer, QUICK).unwrap();
        for _ in 0..10 {
            for block in 0..3 {
                let (x, labels) = (&x[block * 200..][..200], &labels[block * 100..][..100]);
                trainer.train_block(&sketch, &input(x, 2), labels).unwrap();
            }
            trainer.end_epoch(None).unwrap();
        }
        let score = score(&trainer.into_best(), &sketch, &input(&x, 2), &labels).unwrap();
        assert!(score.errors == 0 && score.loss() < 0.1, "{pooling:?} {score:?}");
    }
}

#[test]
fn sparse_rows_train_as_dense_ones_do() {
    let (x, labels) = crossed(40);
    let sketch = Spec::polynomial(2).with_degree(2).with_features(32).sketch::<f32>().unwrap();
    let starts: Vec<u32> = (0..=40).map(|row| 2 * row).collect();
    let columns: Vec<u32> = (0..80).map(|entry| entry % 2).collect();
    let sparse = [SparseRows::new(&starts[..], &columns[..], &x, 2).unwrap().into()];
    let [mut first, mut second] = [trainer(32, QUICK), trainer(32, QUICK)];
    let any: &dyn FeatureMap<f32> = &sketch;
    first.train_block(any, &input(&x, 2), &labels).unwrap();
    second.train_block(&sketch, &sparse, &labels).unwrap();
    assert_eq!(first, second);
}

/// Two epochs of two blocks, with many blocks of columns and an incomplete batch in each.
#[test]
fn training_does_not_depend_on_threads_and_continues_where_it_was_saved() {
    let (x, labels) = crossed(100);
    let features = 2 * COLUMN_BLOCK + 6;
    let sketch = Spec::polynomial(2).with_degree(2).with_features(features).sketch::<f32>().unwrap();
    let run = |threads: usize, interrupted: bool| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let pooling = Pooling { signed_sqrt: true, l2: true };
            let mut trainer = Trainer::new(SoftmaxLayer::new(2, features, pooling).unwrap(), QUICK).unwrap();
            for epoch in 0..2 {
                for block in 0..2 {
                    trainer
                        .train_block(&sketch, &input(&x[block * 100..][..100], 2), &labels[block * 50..][..50])
                        .unwrap();
                    if interrupted {
                        let bytes = trainer.to_archive().to_bytes();
                        trainer = Trainer::from_archive(Archive::from_bytes(&bytes).unwrap()).unwrap();
                    }
                }
                assert_eq!(trainer.end_epoch(None).unwrap().number, epoch + 1);
            }
            trainer
        })
    };
    let alone = run(1, false);
    assert_eq!(alone.adam.steps(), 2 * 2 * 7);
    for (threads, interrupted) in [(1, true), (2, false), (3, true)] {
        assert!(run(threads, interrupted) == alone, "{threads} threads");
    }
}

#[test]
fn saved_states_that_are_wrong_are_refused() {
    let (x, labels) = crossed(20);
    let sketch = Spec::polynomial(2).with_degree(2).with_features(8).sketch::<f32>().unwrap();
    let mut trainer = trainer(8, QUICK);
    trainer.train_block(&sketch, &input(&x, 2), &labels).unwrap();
    trainer.end_epoch(None).unwrap();
    let read = |change: fn(&mut Trainer)| {
        let mut trainer = trainer.clone();
        change(&mut trainer);
        Trainer::from_archive(Archive::from_bytes(&trainer.to_archive().to_bytes())?)
    };
    assert_eq!(read(|_| ()), Ok(trainer.clone()));
    for change in [
        (|trainer: &mut Trainer| trainer.learning_rate = 0.0) as fn(&mut Trainer),
        |trainer| trainer.options.batch = 0,
        |trainer| trainer.stagnant = trainer.options.patience,
        |trainer| trainer.layer.classes = 1,
        |trainer| trainer.layer.features = 7,
        |trainer| trainer.layer.parameters[3] = f32::NAN,
        |trainer| trainer.adam.second[3] = -1.0,
        |trainer| trainer.adam.first.truncate(3),
        |trainer| trainer.best = Some((0.5, Vec::new())),
    ] {
        read(change).unwrap_err();
    }
    Trainer::from_archive(Archive::new("other", &())).unwrap_err();
}

#[test]
fn models_are_saved_and_read() {
    let spec = Spec::polynomial(2).with_degree(2).with_features(8);
    let pooling = Pooling { signed_sqrt: true, l2: false };
    let layer = SoftmaxLayer::from_parameters(8, pooling, &normals(24, 1), &normals(3, 2)).unwrap();
    let model = SoftmaxClassifier::new(spec.clone().into(), layer.clone()).unwrap();
    let bytes = model.to_archive().to_bytes();
    let read = SoftmaxClassifier::from_archive(Archive::from_bytes(&bytes).unwrap()).unwrap();
    assert_eq!(read, model);
    assert_eq!((read.layer(), &read.recipe().spec), (&layer, &spec));
    let other = SoftmaxClassifier::new(Spec::polynomial(2).with_degree(2).with_features(10).into(), layer).unwrap_err();
    assert!(other.to_string().starts_with("recipe: "));
    let mut wrong = model;
    wrong.header.classes = 4;
    SoftmaxClassifier::from_archive(Archive::from_bytes(&wrong.to_archive().to_bytes()).unwrap()).unwrap_err();
    SoftmaxClassifier::from_archive(Archive::new("other", &())).unwrap_err();
}

#[test]
fn every_epoch_and_block_has_its_own_order() {
    let mut trainer = trainer(4, QUICK);
    let mut orders = Vec::new();
    for (epoch, block, seed) in [(0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 0, 2)] {
        (trainer.epoch, trainer.block, trainer.options.seed) = (epoch, block, seed);
        let order = trainer.order(20).unwrap();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        assert!(!orders.contains(&order));
        orders.push(order);
    }
    (trainer.epoch, trainer.block, trainer.options.seed) = (0, 0, 1);
    assert_eq!(trainer.order(20).unwrap(), orders[0]);
    // All six orders of three rows are equally likely: 6000 draws, each count within 5 standard deviations.
    let mut counts = std::collections::BTreeMap::new();
    for block in 0..6000 {
        trainer.block = block;
        *counts.entry(trainer.order(3).unwrap()).or_insert(0) += 1;
    }
    let deviation = (1000.0_f64 * 5.0 / 6.0).sqrt();
    assert!(counts.len() == 6 && counts.values().all(|&count: &i32| f64::from(count - 1000).abs() < 5.0 * deviation));
}

#[test]
fn the_learning_rate_decays_when_the_loss_stagnates_and_the_best_weights_are_kept() {
    let (x, labels) = crossed(16);
    let sketch = Spec::polynomial(2).with_degree(2).with_features(8).sketch::<f32>().unwrap();
    let mut trainer = trainer(8, TrainerOptions { learning_rate: 1.0, ..QUICK });
    let mut best = None;
    // (validation loss, improved, decayed), with a patience of 2.
    for (number, (loss, improved, decayed)) in [
        (0.7, true, false),
        (0.6, true, false),
        (0.6, false, false),
        (0.65, false, true),
        (0.5, true, false),
        (0.9, false, false),
        (0.8, false, true),
        (0.7, false, false),
        (0.6, false, true),
    ]
    .into_iter()
    .enumerate()
    {
        trainer.train_block(&sketch, &input(&x, 2), &labels).unwrap();
        let rate = trainer.learning_rate();
        let epoch = trainer.end_epoch(Some(loss)).unwrap();
        assert_eq!(
            (epoch.number as usize, epoch.validation_loss, epoch.improved, epoch.decayed),
            (number + 1, loss, improved, decayed)
        );
        assert_eq!(epoch.learning_rate, rate);
        let expected = if decayed { rate / 10.0 } else { rate };
        assert_eq!(trainer.learning_rate(), expected);
        if improved {
            best = Some(trainer.layer().clone());
        }
    }
    assert!((trainer.learning_rate() - 1e-3).abs() < 1e-15);
    assert_ne!(best.as_ref(), Some(trainer.layer()));
    assert_eq!(best, Some(trainer.into_best()));
}

#[test]
fn rows_without_length_are_left_at_zero() {
    let mut row = [0.0, 0.0, 3.0, -4.0];
    Pooling { signed_sqrt: false, l2: true }.apply(&mut row, 2);
    assert_eq!(row, [0.0, 0.0, 0.6, -0.8]);
    let mut row = [0.0, 4.0, -9.0, 1e-38];
    Pooling { signed_sqrt: true, l2: false }.apply(&mut row, 4);
    assert_eq!(row[..3], [0.0, 2.0, -3.0]);
    let mut gradient = [1.0; 4];
    Pooling { signed_sqrt: true, l2: true }.backward(&[0.0, 0.0, 0.0, 1.0], 2, &mut gradient);
    assert!(gradient.iter().all(|value| value.is_finite()), "{gradient:?}");
    assert_eq!(gradient[..2], [0.0; 2]);
}

#[test]
fn bad_input_is_named() {
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();
    let new = |classes, features| message(SoftmaxLayer::new(classes, features, Pooling::default()).map(|_| ()));
    assert!(new(1, 4).starts_with("classes: "));
    assert!(new(2, 0).starts_with("features: "));
    assert!(new(2, usize::MAX).starts_with("features: "));
    assert!(new(1 << 20, 1 << 9).starts_with("features: "));
    let parts = |weights: &[f32], biases: &[f32]| {
        message(SoftmaxLayer::from_parameters(2, Pooling::default(), weights, biases).map(|_| ()))
    };
    assert!(parts(&[0.0; 5], &[0.0; 2]).starts_with("weights: "));
    assert!(parts(&[f32::NAN; 4], &[0.0; 2]).starts_with("weights: "));
    assert!(parts(&[0.0; 4], &[0.0, f32::INFINITY]).starts_with("biases: "));

    let layer = SoftmaxLayer::new(2, 8, Pooling::default()).unwrap();
    for (change, named) in [
        (TrainerOptions { batch: 0, ..QUICK }, "batch: "),
        (TrainerOptions { patience: 0, ..QUICK }, "patience: "),
        (TrainerOptions { learning_rate: 0.0, ..QUICK }, "learning_rate: "),
        (TrainerOptions { learning_rate: -1.0, ..QUICK }, "learning_rate: "),
        (TrainerOptions { learning_rate: f64::NAN, ..QUICK }, "learning_rate: "),
        (TrainerOptions { learning_rate: f64::INFINITY, ..QUICK }, "learning_rate: "),
    ] {
        assert!(message(Trainer::new(layer.clone(), change).map(|_| ())).starts_with(named));
    }

    let sketch = Spec::polynomial(2).with_degree(2).with_features(8).sketch::<f32>().unwrap();
    let wide = Spec::polynomial(2).with_degree(2).with_features(10).sketch::<f32>().unwrap();
    let (good, bad) = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, f32::NAN, 4.0]);
    let mut trainer = Trainer::new(layer.clone(), QUICK).unwrap();
    let untouched = trainer.clone();
    let mut gradients = Gradients::new(&layer);
    for (map, x, columns, labels, named) in [
        (&wide, &good, 2, &[0, 1][..], ""),
        (&sketch, &good, 2, &[0], "labels: "),
        (&sketch, &good, 2, &[0, 1, 1], "labels: "),
        (&sketch, &good, 2, &[0, 2], "labels: expected classes below 2, got 2 in row 1"),
        (&sketch, &good, 4, &[0], "input: "),
        (&sketch, &bad, 2, &[0, 1], "input: row 1, column 0 is NaN"),
    ] {
        let inputs = input(x, columns);
        for message in [
            message(trainer.train_block(map, &inputs, labels)),
            message(score(&layer, map, &inputs, labels).map(|_| ())),
            message(layer.loss_and_gradients(map, &inputs, labels, &mut gradients, None).map(|_| ())),
        ] {
            assert!(message.starts_with(named), "{message}");
        }
    }
    assert!(message(trainer.train_block(&wide, &input(&good, 2), &[0, 1])).starts_with("map: "));
    assert!(message(score(&layer, &wide, &input(&good, 2), &[0, 1]).map(|_| ())).starts_with("features: "));
    assert!(message(trainer.train_block(&sketch, &[], &[])).starts_with("inputs: "));
    assert!(message(trainer.end_epoch(None).map(|_| ())).starts_with("labels: "));
    assert_eq!(trainer, untouched);
    trainer.train_block(&sketch, &input(&good, 2), &[0, 1]).unwrap();
    assert!(message(trainer.end_epoch(Some(f64::NAN)).map(|_| ())).starts_with("validation_loss: "));

    let empty = layer.loss_and_gradients(&sketch, &input(&[], 2), &[], &mut gradients, None);
    assert!(message(empty.map(|_| ())).starts_with("labels: "));
    let mut other = Gradients::new(&SoftmaxLayer::new(4, 8, Pooling::default()).unwrap());
    let wrong = layer.loss_and_gradients(&sketch, &input(&good, 2), &[0, 1], &mut other, None);
    assert!(message(wrong.map(|_| ())).starts_with("gradients: "));

    let mut adam = Adam::new(1);
    assert!(message(adam.step(0.0, &mut [0.0], &[1.0])).starts_with("learning_rate: "));
    assert!(message(adam.step(0.1, &mut [0.0; 2], &[1.0])).starts_with("parameters: "));
    assert!(message(adam.step(0.1, &mut [0.0], &[])).starts_with("gradients: "));
    assert_eq!(adam, Adam::new(1));
    assert_eq!(adam.step(0.1, &mut [0.0], &[1e30]), Err(Error::Diverged));
}

/// A row whose features fit into `f32` but whose logits do not.
#[test]
fn overflow_names_the_row_in_the_block() {
    let sketch = Spec::polynomial(1).with_degree(1).with_features(2).sketch::<f32>().unwrap();
    let layer = SoftmaxLayer::from_parameters(2, Pooling::default(), &[1e4; 4], &[0.0; 2]).unwrap();
    let x = [1.0, 1.0, 1.0, 1e36];
    let overflow = Error::Overflow { row: 3, dtype: "f32" };
    let features = sketch.transform(&input(&x, 1)).unwrap();
    assert_eq!(layer.probabilities(Rows::new(&features, 4, 2).unwrap()), Err(overflow.clone()));
    let mut trainer = Trainer::new(layer, TrainerOptions { batch: 1, learning_rate: 1e-9, ..QUICK }).unwrap();
    assert_eq!(trainer.train_block(&sketch, &input(&x, 1), &[0; 4]), Err(overflow));
}
