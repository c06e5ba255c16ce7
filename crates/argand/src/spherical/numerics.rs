//! Numerical tools of the fit: line minimisation, quadrature and a small linear solver. A fixed order of additions and
//! `libm` make fits the same on every machine.

/// The minimiser of a unimodal function between `lower` and `upper`.
pub(super) fn golden_section(function: impl Fn(f64) -> f64, mut lower: f64, mut upper: f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    for _ in 0..48 {
        let width = RATIO * (upper - lower);
        let (left, right) = (upper - width, lower + width);
        if function(left) < function(right) {
            upper = right;
        } else {
            lower = left;
        }
    }
    0.5 * (lower + upper)
}

/// Nodes and weights of the Gauss–Legendre rule on [−1, 1], by Newton's method on the Legendre polynomial.
pub(super) fn gauss_legendre(count: usize) -> (Vec<f64>, Vec<f64>) {
    let order = count as f64;
    let rule = (0..count).map(|index| {
        let mut node = -libm::cos(std::f64::consts::PI * (index as f64 + 0.75) / (order + 0.5));
        let mut slope = 1.0;
        // Quadratic convergence from an error below 1/n²: six steps are more than enough.
        for _ in 0..6 {
            let (mut previous, mut value) = (1.0, node);
            for degree in 1..count {
                let degree = degree as f64;
                (previous, value) = (value, ((2.0 * degree + 1.0) * node * value - degree * previous) / (degree + 1.0));
            }
            slope = order * (node * value - previous) / (node * node - 1.0);
            node -= value / slope;
        }
        (node, 2.0 / ((1.0 - node * node) * slope * slope))
    });
    rule.unzip()
}

/// The solution of A x = b by Cholesky's method; `None` unless A is numerically positive definite.
pub(super) fn solve_positive_definite<const N: usize>(
    mut matrix: [[f64; N]; N],
    mut vector: [f64; N],
) -> Option<[f64; N]> {
    for column in 0..N {
        for row in column..N {
            let product: f64 = (0..column).map(|inner| matrix[row][inner] * matrix[column][inner]).sum();
            let remainder = matrix[row][column] - product;
            if row == column {
                if !(remainder > 0.0 && remainder.is_finite()) {
                    return None;
                }
                matrix[row][column] = libm::sqrt(remainder);
            } else {
                matrix[row][column] = remainder / matrix[column][column];
            }
        }
    }
    for row in 0..N {
        let known: f64 = (0..row).map(|column| matrix[row][column] * vector[column]).sum();
        vector[row] = (vector[row] - known) / matrix[row][row];
    }
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[column][row] * vector[column]).sum();
        vector[row] = (vector[row] - known) / matrix[row][row];
    }
    vector.iter().all(|value| value.is_finite()).then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_are_found() {
        let place = golden_section(|x| (x - 0.3) * (x - 0.3), -1.0, 2.0);
        assert!((place - 0.3).abs() < 1e-7, "{place}");
    }

    /// The rule with n nodes integrates every power up to 2n − 1.
    #[test]
    fn quadrature_is_exact_for_polynomials() {
        for count in [1, 2, 5, 24, 61] {
            let (nodes, weights) = gauss_legendre(count);
            for power in 0..2 * count {
                let integral: f64 =
                    nodes.iter().zip(&weights).map(|(node, weight)| weight * libm::pow(*node, power as f64)).sum();
                let expected = if power % 2 == 0 { 2.0 / (power as f64 + 1.0) } else { 0.0 };
                assert!((integral - expected).abs() < 1e-13, "{count} nodes, power {power}: {integral}");
            }
        }
    }

    #[test]
    fn linear_systems() {
        const SIZE: usize = 20;
        // The second-difference matrix plus one, and the solution 1, 2, ….
        let mut matrix = [[0.0; SIZE]; SIZE];
        for row in 0..SIZE {
            matrix[row][row] = 3.0;
            if row > 0 {
                (matrix[row][row - 1], matrix[row - 1][row]) = (-1.0, -1.0);
            }
        }
        let solution: [f64; SIZE] = std::array::from_fn(|index| index as f64 + 1.0);
        let vector = matrix.map(|row| row.iter().zip(solution).map(|(entry, value)| entry * value).sum());
        for (got, expected) in solve_positive_definite(matrix, vector).unwrap().into_iter().zip(solution) {
            assert!((got - expected).abs() < 1e-12, "{got} {expected}");
        }
        matrix[3][3] = -1.0;
        assert_eq!(solve_positive_definite(matrix, vector), None);
    }
}
