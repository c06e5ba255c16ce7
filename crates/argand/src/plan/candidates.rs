//! Which methods a plan considers.

use crate::spec::{Base, Field, Frequencies, InputDims, Kernel, Method, Polynomial, ProductMethod, Shape};

/// The methods for a kernel, without duplicates: those the paper compares and chains for polynomial kernels, random Fourier features for
/// Gaussian ones, and for tables of one kind power series, Nyström's features and all monomials.
pub(super) fn candidates(kernel: &Kernel, inputs: &InputDims) -> Vec<Method> {
    let mut methods = match kernel {
        Kernel::Polynomial(Polynomial { degree, .. }) => products(*degree),
        Kernel::Gaussian { .. } => {
            [Frequencies::Structured, Frequencies::Orthogonal, Frequencies::Independent].map(Method::Fourier).to_vec()
        }
        _ => Vec::new(),
    };
    let InputDims::Same(_) = inputs else { return methods };
    // A polynomial kernel of one power has its plain sketches.
    let powers = (0..=Kernel::MOST_DEGREES).filter(|&degree| kernel.coefficient(degree) > 0.0).take(2).count();
    if powers == 2 || kernel.polynomial().is_none() {
        methods.push(Method::Maclaurin(DEFAULT));
    }
    methods.push(Method::Nystrom);
    if kernel.polynomial().is_some() {
        methods.push(Method::Exact);
    }
    methods
}

const DEFAULT: ProductMethod =
    ProductMethod { base: Base::ProductSrht, field: Field::ComplexToReal, shape: Shape::Flat, craft: None };

/// The methods that the paper compares, and chains.
fn products(degree: usize) -> Vec<Method> {
    let flat = |field| move |base| Method::flat(base, field);
    let mut methods: Vec<Method> = Vec::new();
    methods.extend([Base::ProductSrht, Base::TensorSketch, Base::Rademacher, Base::Gaussian].map(flat(Field::Real)));
    methods.extend([Base::ProductSrht, Base::Rademacher, Base::Gaussian].map(flat(Field::ComplexToReal)));
    let product = |shape, craft| Method::Product(ProductMethod { shape, craft, ..DEFAULT });
    if degree > 2 {
        methods.push(product(Shape::Tree, None));
    }
    // With three factors the tree is the chain.
    if degree > 3 {
        methods.push(product(Shape::Chain, None));
    }
    methods.push(product(Shape::Flat, Some(ProductMethod::DEFAULT_CRAFT)));
    methods.push(Method::Spherical);
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kernel: &Kernel, inputs: &InputDims) -> Vec<String> {
        candidates(kernel, inputs).iter().map(Method::to_string).collect()
    }

    fn polynomial(degree: usize, coef0: f64) -> Kernel {
        Polynomial { degree, gamma: 1.0, coef0 }.into()
    }

    #[test]
    fn no_sketch_is_considered_under_two_names() {
        let of = |degree| names(&polynomial(degree, 0.0), &InputDims::Same(3));
        let has = |degree, name: &str| of(degree).contains(&name.to_owned());
        for degree in 1..6 {
            assert_eq!(has(degree, "hierarchical-ctr-product-srht"), degree > 2);
            assert_eq!(has(degree, "chain-ctr-product-srht"), degree > 3);
            assert!(has(degree, "ctr-product-srht") && has(degree, "tensor-sketch") && has(degree, "srf"));
            assert!(has(degree, "nystrom") && has(degree, "exact") && !has(degree, "maclaurin-ctr-product-srht"));
        }
        assert_eq!(of(4).len(), 13);
        // Users get real features.
        let methods = candidates(&polynomial(5, 1.0), &InputDims::Same(3));
        assert!(methods.iter().all(|method| method.field() != Field::Complex));
    }

    #[test]
    fn every_kernel_has_the_methods_for_it() {
        let same = InputDims::Same(3);
        assert!(names(&polynomial(3, 0.5), &same).contains(&"maclaurin-ctr-product-srht".to_owned()));
        let gaussian = names(&Kernel::Gaussian { length_scale: 1.0 }, &same);
        assert_eq!(gaussian, ["sorf", "orf", "rff", "maclaurin-ctr-product-srht", "nystrom"]);
        let exponential = names(&Kernel::Exponential { length_scale: 1.0 }, &same);
        assert_eq!(exponential, ["maclaurin-ctr-product-srht", "nystrom"]);
        let one_power = names(&Kernel::Series { coefficients: vec![0.0, 0.0, 1.0] }, &same);
        assert_eq!(one_power, ["maclaurin-ctr-product-srht", "nystrom"]);
        // Products of several tables have sketches only.
        let distinct = names(&polynomial(2, 1.0), &InputDims::Distinct(vec![2, 3]));
        assert!(!distinct.iter().any(|name| ["nystrom", "exact"].contains(&name.as_str()) || name.starts_with("mac")));
    }
}
