//! Learning on an engine beside learning on the processor: on a plain model of one, and on a GPU where there is one.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use argand::draw::Drawn;
use argand::{Error, FeatureMap, Input, Polynomial, Rows, Spec};
use argand_learn::{
    Engine, EngineSketch, Factors, GpClassifier, GpOptions, GpRegressor, Gram, Labels, Model, Pipeline, PreparationFit,
    Recipe, Ridge, Scaling, Sums, Targets, Variances, read_model,
};

/// Everything by its definition.
#[derive(Debug)]
struct Plain;

impl Engine for Plain {
    fn sketch(&self, drawn: &Drawn) -> Result<EngineSketch, Error> {
        let again = drawn.clone();
        let sums = move |more, groups| -> Result<Box<dyn Sums>, Error> {
            let (map, width) = (Box::new(again.sketch::<f32>()?), again.spec.features + more);
            Ok(Box::new(PlainSums { map, more, sums: vec![vec![0.0; width * (width + 1) / 2]; groups] }))
        };
        Ok(EngineSketch { map: Box::new(drawn.sketch::<f32>()?), sums: Box::new(sums) })
    }

    fn cholesky(&self, size: usize, packed: &mut [f64]) -> Result<(), Error> {
        let at = |row: usize, column: usize| row * (row + 1) / 2 + column;
        for row in 0..size {
            for column in 0..=row {
                let known: f64 = (0..column).map(|k| packed[at(row, k)] * packed[at(column, k)]).sum();
                let rest = packed[at(row, column)] - known;
                packed[at(row, column)] = if row == column { rest.sqrt() } else { rest / packed[at(column, column)] };
            }
        }
        Ok(())
    }

    fn factors(&self, _: usize, packed: &[&[f64]]) -> Result<Arc<dyn Factors>, Error> {
        Ok(Arc::new(PlainFactors(packed.iter().map(|packed| packed.to_vec()).collect())))
    }

    fn inner_products(&self, rows: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        let product =
            |i: usize, j: usize| rows.row(i).iter().zip(rows.row(j)).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        Ok((0..rows.rows()).flat_map(|i| (0..=i).map(move |j| product(i, j))).collect())
    }
}

struct PlainSums {
    map: Box<dyn FeatureMap<f32>>,
    more: usize,
    sums: Vec<Vec<f64>>,
}

impl Sums for PlainSums {
    fn add(&mut self, inputs: &[Input<'_, f32>], others: &[f64], groups: &[u32]) -> Result<(), Error> {
        let features = self.map.transform(inputs)?;
        for ((features, others), &group) in
            features.chunks(self.map.output_dim()).zip(others.chunks(self.more)).zip(groups)
        {
            let z: Vec<f64> = features.iter().map(|&value| f64::from(value)).chain(others.iter().copied()).collect();
            let products = (0..z.len()).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| z[i] * z[j]);
            self.sums[group as usize].iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Vec<f64>>, Error> {
        Ok(self.sums)
    }
}

#[derive(Debug)]
struct PlainFactors(Vec<Vec<f64>>);

impl Factors for PlainFactors {
    fn squared_norms(&self, rows: Rows<'_, f32>) -> Result<Vec<Vec<f64>>, Error> {
        let norm = |packed: &[f64], row: usize| {
            let mut solved: Vec<f64> = Vec::new();
            for (i, &value) in rows.row(row).iter().enumerate() {
                let entries = &packed[i * (i + 1) / 2..][..=i];
                let known: f64 = entries.iter().zip(&solved).map(|(entry, value)| entry * value).sum();
                solved.push((f64::from(value) - known) / entries[i]);
            }
            solved.iter().map(|value| value * value).sum()
        };
        Ok(self.0.iter().map(|packed| (0..rows.rows()).map(|row| norm(packed, row)).collect()).collect())
    }
}

const ROWS: usize = 700;
const COLUMNS: usize = 9;

/// Equal within a share of the largest.
fn close(tolerance: f64, got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * size, "{what} {at}: {got} {want}");
    }
}

/// Rows, their classes and two columns of numbers.
fn data() -> (Vec<f32>, Vec<u32>, Vec<f64>) {
    let x: Vec<f32> = (0..ROWS * COLUMNS).map(|i| ((i * 7919 % 1009) as f32 / 500.0) - 1.0).collect();
    let class = |row: &[f32]| u32::from(row[0] > 0.3) + u32::from(row[1] * row[2] > 0.0);
    let numbers = |row: &[f32]| [f64::from(row[0] * row[3]), f64::from(row[1]) + 2.0];
    (x.clone(), x.chunks(COLUMNS).map(class).collect(), x.chunks(COLUMNS).flat_map(numbers).collect())
}

fn gram(pipeline: &Pipeline<f32>, targets: Targets, x: &[f32], labels: Labels<'_>) -> Gram {
    let mut summing = pipeline.summing(targets, u64::MAX).unwrap();
    // In two parts.
    for range in [0..ROWS / 3, ROWS / 3..ROWS] {
        let part = &x[range.start * COLUMNS..range.end * COLUMNS];
        let rows = Rows::new(part, range.len(), COLUMNS).unwrap();
        summing.update(&[rows.into()], labels.slice(range)).unwrap();
    }
    summing.finish().unwrap()
}

fn compare(engine: &Arc<dyn Engine>, tolerance: f64) {
    let close = |got: &[f64], want: &[f64], what: &str| close(tolerance, got, want, what);
    let (x, classes, numbers) = data();
    let (classes, numbers) = (Labels::Classes(&classes), Labels::Values(Rows::new(&numbers, ROWS, 2).unwrap()));
    let inputs = [Rows::new(&x, ROWS, COLUMNS).unwrap().into()];
    for (method, scaling) in
        [("ctr-product-srht", Scaling::Unit), ("tensor-sketch", Scaling::None), ("srf", Scaling::Unit)]
    {
        let mut spec = Spec::polynomial(COLUMNS).with_features(150).with_method(method.parse().unwrap());
        spec.kernel = Polynomial { gamma: 0.5, coef0: 0.5, degree: 2 }.into();
        let recipe = Recipe::new(PreparationFit::new(scaling, &[COLUMNS]).finish().unwrap(), spec);
        let (here, there) = (recipe.pipeline::<f32>().unwrap(), recipe.pipeline_with(engine).unwrap());
        assert!(here.engine().is_none() && there.engine().is_some());
        let features = here.transform(&inputs).unwrap();
        let features = Rows::new(&features, ROWS, 150).unwrap();

        for (targets, labels) in
            [(Targets::Classes(3), classes), (Targets::ClassesApart(3), classes), (Targets::Values(2), numbers)]
        {
            let [want, got] = [&here, &there].map(|pipeline| gram(pipeline, targets, &x, labels));
            assert_eq!((got.rows(), got.targets(), got.recipe()), (ROWS as u64, targets, want.recipe()));
            close(&got.products(), &want.products(), "products");
            close(&got.feature_sums(), &want.feature_sums(), "sums");
            close(got.target_sums(), want.target_sums(), "targets");
            close(&got.target_spreads(), &want.target_spreads(), "spreads");
            (0..targets.columns()).for_each(|at| close(&got.moments(at), &want.moments(at), "moments"));

            // The same models, whichever of the two Grams they are from.
            let fit = |gram: &Gram| -> Box<dyn Model> {
                match targets {
                    Targets::Classes(_) => Box::new(Ridge::fit(gram, 0.1).unwrap()),
                    Targets::ClassesApart(_) => Box::new(GpClassifier::fit(gram, &GpOptions::default()).unwrap()),
                    Targets::Values(_) => {
                        let variances = Variances { kernel: 1.0, noise: 0.1 };
                        Box::new(GpRegressor::fit(gram, Some(variances)).unwrap())
                    }
                }
            };
            let (want, got) = (fit(&want), fit(&got));
            close(&got.scores(features).unwrap(), &want.scores(features).unwrap(), "scores");
            close(&got.predict(features).unwrap(), &want.predict(features).unwrap(), "predictions");
            if let (Some(got), Some(want)) = (got.evidence(), want.evidence()) {
                close(&[got], &[want], "evidence");
            }
            // Read from a file, it predicts on the engine if it is told to.
            let mut read = read_model(want.to_archive()).unwrap();
            read.run_on(engine);
            let [want, got] = [&want, &read].map(|model| model.latent(features).unwrap());
            assert_eq!(want.is_some(), !matches!(targets, Targets::Classes(_)));
            if let (Some(want), Some(got)) = (want, got) {
                close(&got.variances, &want.variances, "variances");
                close(&got.means, &want.means, "means");
            }
        }
        let products = engine.inner_products(features).unwrap();
        close(&products, &Plain.inner_products(features).unwrap(), "inner products");
    }
}

#[test]
fn a_plain_engine_learns_what_the_processor_does() {
    compare(&(Arc::new(Plain) as Arc<dyn Engine>), 1e-9);
}

/// Labels that do not fit are found before anything is sent, and a matrix that is indefinite by rounding is repaired on the processor.
#[test]
fn bad_labels_and_indefinite_matrices() {
    let engine = Arc::new(Plain) as Arc<dyn Engine>;
    let recipe = Recipe::from(Spec::polynomial(COLUMNS).with_degree(2).with_features(16));
    let pipeline = recipe.pipeline_with(&engine).unwrap();
    let (x, ..) = data();
    let inputs = [Rows::new(&x[..3 * COLUMNS], 3, COLUMNS).unwrap().into()];
    let mut summing = pipeline.summing(Targets::ClassesApart(2), u64::MAX).unwrap();
    for (labels, message) in [
        (Labels::Classes(&[0, 1]), "labels: expected 3 rows, as the features, got 2"),
        (Labels::Classes(&[0, 1, 2]), "labels: expected classes below 2, got 2 in row 2"),
    ] {
        assert_eq!(summing.update(&inputs, labels).unwrap_err().to_string(), message);
    }
    summing.update(&inputs, Labels::Classes(&[0, 1, 0])).unwrap();
    let gram = summing.finish().unwrap();
    assert_eq!(gram.target_sums(), [2.0, 1.0]);
    // A kernel variance this large leaves nothing of the identity.
    let options = GpOptions { variance: Some(1e30), ..GpOptions::default() };
    let [there, here] = [gram.clone(), Gram::from_bytes(&gram.to_bytes()).unwrap()]
        .map(|gram| GpClassifier::fit(&gram, &options).map(|model| model.to_archive().to_bytes()));
    assert_eq!(there.is_ok(), here.is_ok());
    if let (Ok(there), Ok(here)) = (there, here) {
        assert!(there == here, "both are repaired on the processor");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_learns_what_the_processor_does() {
    let engine = argand_cuda::Device::open(0).and_then(|device| argand_learn::CudaEngine::find(&device));
    match engine {
        // Features differ by their rounding to f32.
        Ok(Some(engine)) => compare(&(Arc::new(engine) as Arc<dyn Engine>), 1e-5),
        other => {
            let reason = other.map_or_else(|error| error.to_string(), |_| "cuBLAS was not found".to_owned());
            eprintln!("skipped: {reason}");
            assert!(std::env::var_os("ARGAND_NEEDS_GPU").is_none(), "ARGAND_NEEDS_GPU is set, and there is none");
        }
    }
}
