//! The most probable class, and how to know it without all variances and probabilities.

use argand::Error;
use rayon::prelude::*;

use super::averaged::AveragedSoftmax;
use super::prediction::{deviations, draws};
use crate::score::largest;

/// More than rounding could make up for, in latent functions and in probabilities.
const ROUNDING: f64 = 1e-9;
/// By how much more than the ratio of noise variances two variances may differ, for rounding.
const SLACK: f64 = 1.001;

/// The class of the largest probability, which is the softmax averaged over draws.
pub(super) struct Rule {
    classes: usize,
    /// The smallest and the largest draw of every class.
    ends: Vec<[f64; 2]>,
    average: AveragedSoftmax,
}

impl Rule {
    /// # Errors
    /// [`Error::Invalid`] for no samples.
    pub(super) fn new(classes: usize, samples: usize, seed: u64) -> Result<Self, Error> {
        let draws = draws(classes, samples, seed)?;
        let mut ends = vec![[f64::INFINITY, f64::NEG_INFINITY]; classes];
        for draw in draws.chunks_exact(classes) {
            for ([low, high], &value) in ends.iter_mut().zip(draw) {
                (*low, *high) = (low.min(value), high.max(value));
            }
        }
        Ok(Self { classes, ends, average: AveragedSoftmax::new(&draws, classes) })
    }

    /// The label of a row.
    pub(super) fn label(&self, means: &[f64], variances: &[f64]) -> u32 {
        let deviations = deviations(variances);
        self.ahead(means, &deviations, &deviations).unwrap_or_else(|| {
            let mut probabilities = vec![0.0; self.classes];
            self.average.add(means, &deviations, &mut probabilities);
            largest(&probabilities, self.classes)[0]
        })
    }

    /// The class that is ahead in every draw, whatever the deviations between the `least` and the `most`.
    fn ahead(&self, means: &[f64], least: &[f64], most: &[f64]) -> Option<u32> {
        let best = largest(means, self.classes)[0];
        let end = |class: usize, which: usize| {
            let [one, other] = [least[class], most[class]].map(|deviation| deviation * self.ends[class][which]);
            means[class] + if which == 0 { one.min(other) } else { one.max(other) }
        };
        let ahead = end(best as usize, 0);
        (0..self.classes).all(|class| class == best as usize || ahead - end(class, 1) > ROUNDING).then_some(best)
    }

    /// The label of a row of which some variances are known (the others are NaN), if they decide; otherwise the classes whose variances
    /// may. `ratio` is the largest ratio of variances of two classes.
    fn label_from_some(&self, means: &[f64], variances: &[f64], ratio: f64) -> Result<u32, Vec<usize>> {
        let unknown = |class: usize| variances[class].is_nan();
        if !(0..self.classes).any(unknown) {
            return Ok(self.label(means, variances));
        }
        // No variance is smaller or larger than every known one allows.
        let known = || variances.iter().filter(|variance| !variance.is_nan());
        let least = known().copied().fold(0.0, f64::max) / (ratio * SLACK);
        let most = known().copied().fold(f64::INFINITY, f64::min) * (ratio * SLACK);
        let filled = |bound: f64| -> Vec<f64> {
            let variance = |variance: &f64| if variance.is_nan() { bound } else { *variance };
            deviations(&variances.iter().map(variance).collect::<Vec<_>>())
        };
        let (least, most) = (filled(least), filled(most));
        if let Some(best) = self.ahead(means, &least, &most) {
            return Ok(best);
        }
        let [lower, upper] = self.average.bounds(means, &least, &most);
        let best = largest(&lower, self.classes)[0];
        let close = |class: usize| class == best as usize || upper[class] >= lower[best as usize] - ROUNDING;
        let close: Vec<usize> = (0..self.classes).filter(|&class| close(class)).collect();
        if close.len() == 1 {
            return Ok(best);
        }
        let needed: Vec<usize> = close.into_iter().filter(|&class| unknown(class)).collect();
        Err(if needed.is_empty() { (0..self.classes).filter(|&class| unknown(class)).collect() } else { needed })
    }

    /// The labels of rows with these means, asking for variances of classes, for some rows each, only as they are needed: first of the
    /// class with the largest mean, then of those that may be more probable, then of all others.
    ///
    /// # Errors
    /// Those of `variances_of`.
    pub(super) fn labels(
        &self,
        means: &[f64],
        ratio: f64,
        variances_of: impl Fn(usize, &[usize]) -> Result<Vec<f64>, Error> + Sync,
    ) -> Result<Vec<u32>, Error> {
        let classes = self.classes;
        let mut labels = largest(means, classes);
        let mut variances = vec![f64::NAN; means.len()];
        let mut wanted = vec![Vec::new(); classes];
        labels.iter().enumerate().for_each(|(row, &best)| wanted[best as usize].push(row));
        let mut open: Vec<usize> = (0..labels.len()).collect();
        let mut again = false;
        while !open.is_empty() {
            let found = wanted.par_iter().enumerate().map(|(class, rows)| variances_of(class, rows));
            let found = found.collect::<Result<Vec<_>, _>>()?;
            for (class, (rows, found)) in wanted.iter_mut().zip(found).enumerate() {
                rows.drain(..).zip(found).for_each(|(row, variance)| variances[row * classes + class] = variance);
            }
            let of_row = |&row: &usize| {
                let range = row * classes..(row + 1) * classes;
                self.label_from_some(&means[range.clone()], &variances[range], ratio)
            };
            let answers: Vec<_> = open.par_iter().with_min_len(8).map(of_row).collect();
            let mut left = Vec::new();
            for (row, answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(label) => labels[row] = label,
                    Err(needed) => {
                        let unknown = |class: &usize| variances[row * classes + class].is_nan();
                        let needed = if again { (0..classes).filter(unknown).collect() } else { needed };
                        needed.into_iter().for_each(|class| wanted[class].push(row));
                        left.push(row);
                    }
                }
            }
            (open, again) = (left, true);
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use argand::rng::{Purpose, Stream};

    use super::*;
    use crate::GpPrediction;

    /// Labels from some of the variances are those from all, whether rows are clear, close or tied; few variances are asked for if they
    /// are clear.
    #[test]
    fn labels_from_some_variances_are_those_from_all() {
        let mut stream = Stream::new(3, Purpose::Sample, 7, 0);
        for (spread, size, classes) in [(0.0, 1.0, 3), (0.5, 1.0, 3), (2.0, 0.5, 7), (4.0, 0.05, 26), (40.0, 2.0, 26)] {
            let (rows, ratio) = (300, 10.0_f64);
            let means: Vec<f64> = (0..rows * classes).map(|_| spread * stream.complex_normal().0).collect();
            // Of every row, variances that differ by up to the ratio.
            let variances: Vec<f64> = (0..rows)
                .flat_map(|_| {
                    let of_row = size * (0.2 + stream.uniform());
                    (0..classes).map(|_| of_row * ratio.powf(stream.uniform())).collect::<Vec<_>>()
                })
                .collect();
            let asked = AtomicUsize::new(0);
            let of = |class: usize, rows: &[usize]| {
                asked.fetch_add(rows.len(), Ordering::Relaxed);
                Ok(rows.iter().map(|row| variances[row * classes + class]).collect())
            };
            let got = Rule::new(classes, 1000, 0).unwrap().labels(&means, ratio, of).unwrap();
            let prediction = GpPrediction { columns: classes, means: means.clone(), variances: variances.clone() };
            let probabilities = prediction.probabilities(1000, 0).unwrap();
            assert_eq!(got, largest(&probabilities, classes), "{spread} {classes}");
            let asked = asked.into_inner();
            assert!(asked <= rows * classes);
            assert!(spread < 4.0 || asked < rows * classes / 5, "{spread}: {asked} of {}", rows * classes);
        }
        let failing = |_: usize, _: &[usize]| Err(Error::invalid(argand::Argument::Rows, "some", 0));
        assert!(Rule::new(2, 10, 0).unwrap().labels(&[0.0, 1.0], 2.0, failing).is_err());
    }

    /// A mean that is ahead by little, of a class that varies hardly: one of the others, which vary much, is more probable. Bounds that do
    /// not allow for that give the wrong label.
    #[test]
    fn variances_that_are_not_known_may_decide() {
        let rule = Rule::new(3, 1000, 0).unwrap();
        let (means, variances) = ([0.1, 0.0, 0.0], [0.01, 9.0, 9.0]);
        let of = |class: usize, rows: &[usize]| Ok(vec![variances[class]; rows.len()]);
        let want = rule.label(&means, &variances);
        assert_ne!(want, 0);
        assert_eq!(rule.labels(&means, 900.0, of).unwrap(), [want]);
        assert_eq!(rule.labels(&means, 1.0, of).unwrap(), [0]);
    }
}
