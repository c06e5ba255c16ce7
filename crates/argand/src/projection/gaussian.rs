//! Independent normal entries.

use super::Kind;
use crate::draw::Projection;
use crate::rng::Purpose;
use crate::theory::variance::PairStatistics;

/// An m × d matrix with independent entries from N(0, 1) or CN(0, 1).
///
/// # Reference
/// Alg. 1. Row ℓ of factor i comes from the stream (weights, i, ℓ).
pub(crate) struct Gaussian;

impl Kind for Gaussian {
    const NAME: &'static str = "gaussian";

    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
        let (dim, mut stream) = (projection.draw.dim, projection.draw.stream(Purpose::Weights, output));
        if projection.draw.complex {
            return (0..dim).map(|_| stream.complex_normal().into()).collect();
        }
        let both = |(re, im)| [re, im].map(|part: f64| [part * std::f64::consts::SQRT_2, 0.0]);
        (0..dim.div_ceil(2)).flat_map(|_| both(stream.complex_normal())).take(dim).collect()
    }

    #[inline(always)]
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
        let a = pair.inner * pair.inner;
        if complex { [pair.norms + a, 2.0 * a] } else { [pair.norms + 2.0 * a; 2] }
    }
}
