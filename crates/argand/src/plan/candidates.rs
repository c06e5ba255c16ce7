//! Which methods a plan considers.

use crate::spec::{Base, Field, Method, ProductMethod, Shape};

/// The methods the paper compares, and chains, without duplicates at this degree.
pub(super) fn candidates(degree: usize) -> Vec<Method> {
    let flat = |field| move |base| Method::flat(base, field);
    let mut methods: Vec<Method> = Vec::new();
    methods.extend([Base::ProductSrht, Base::TensorSketch, Base::Rademacher, Base::Gaussian].map(flat(Field::Real)));
    methods.extend([Base::ProductSrht, Base::Rademacher, Base::Gaussian].map(flat(Field::ComplexToReal)));
    let product = |shape, craft| {
        Method::Product(ProductMethod { base: Base::ProductSrht, field: Field::ComplexToReal, shape, craft })
    };
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

    #[test]
    fn no_sketch_is_considered_under_two_names() {
        let names = |degree| candidates(degree).iter().map(Method::to_string).collect::<Vec<_>>();
        let has = |degree, name: &str| names(degree).contains(&name.to_owned());
        for degree in 1..6 {
            assert_eq!(has(degree, "hierarchical-ctr-product-srht"), degree > 2);
            assert_eq!(has(degree, "chain-ctr-product-srht"), degree > 3);
            assert!(has(degree, "ctr-product-srht") && has(degree, "tensor-sketch") && has(degree, "srf"));
        }
        assert_eq!(names(4).len(), 11);
        // Users get real features.
        assert!(candidates(5).iter().all(|method| method.field() != Field::Complex));
    }
}
