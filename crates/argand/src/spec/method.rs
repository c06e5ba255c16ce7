//! Methods: how rows become features, by the paper's names.

use std::fmt;
use std::str::FromStr;

use crate::error::{Argument, Error};

pub use crate::projection::Base;

/// The numbers a sketch computes with and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// Real projections, `features` real columns.
    Real,
    /// Complex projections; the columns are `features / 2` complex numbers stored as (re, im) pairs.
    Complex,
    /// Complex projections; the columns are [Re…, Im…] (Alg. 1).
    ComplexToReal,
}

impl Field {
    /// Whether the projections are complex.
    #[must_use]
    pub fn is_complex(self) -> bool {
        self != Self::Real
    }
}

/// How the p projections combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shape {
    /// Element-wise product of all of them (Eq. 4).
    Flat,
    /// A binary tree of degree-2 sketches (Ahle et al. 2020, Alg. 1).
    Tree,
    /// One factor at a time, with a square SRHT in between.
    Chain,
}

/// How rows become features. Each method has a name, the paper's where there is one.
///
/// ```
/// use argand::{Base, Field, Method};
/// let method: Method = "ctr-product-srht".parse()?;
/// assert_eq!(method, Method::flat(Base::ProductSrht, Field::ComplexToReal));
/// assert_eq!(method.to_string(), "ctr-product-srht");
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Products of random projections: sketches of tensor products, unbiased.
    Product(ProductMethod),
    /// Spherical random features (Pennington et al. 2015): cosines of random projections, for rows of unit norm only.
    /// Biased. Scales rows to unit norm, which discards their norms.
    Spherical,
    /// The power series of a kernel, term by term: constant and linear term exactly, higher powers by sketches like these, which share the
    /// features (`maclaurin-`). Unbiased up to the powers left out. Which power has how many is fitted on a sample of the rows.
    Maclaurin(ProductMethod),
    /// Cosines and sines of random projections, for Gaussian kernels: `rff`, `orf` and `sorf`. Unbiased.
    Fourier(Frequencies),
    /// Kernels of a row and some landmark rows, whitened (`nystrom`): exact on the landmarks. Landmarks are fitted on a sample of the rows.
    Nystrom,
    /// All monomials of a polynomial kernel, with their weights (`exact`).
    Exact,
}

/// The frequencies of random Fourier features: projections of Gaussian length and uniform direction, divided by ℓ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Frequencies {
    /// Independent Gaussian vectors, `rff` (Rahimi and Recht 2007).
    Independent,
    /// Orthogonal in blocks of d, `orf` (Yu et al. 2016).
    Orthogonal,
    /// Products of Hadamard matrices and random signs, `sorf`: nearly orthogonal, in time d log d (Yu et al. 2016).
    Structured,
}

impl Frequencies {
    const ALL: [(&'static str, Self); 3] =
        [("rff", Self::Independent), ("orf", Self::Orthogonal), ("sorf", Self::Structured)];
}

/// A combination of base, field, shape and optional CRAFT down-projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProductMethod {
    /// The base of each projection.
    pub base: Base,
    /// The numbers to compute with.
    pub field: Field,
    /// How the projections combine.
    pub shape: Shape,
    /// The up-projection dimension E of a CRAFT map (Hamid et al. 2014); `None` for other methods.
    pub craft: Option<usize>,
}

impl ProductMethod {
    /// The paper's up-projection dimension, used when a `craft-` method names none.
    pub const DEFAULT_CRAFT: usize = 1 << 15;
}

impl From<ProductMethod> for Method {
    fn from(product: ProductMethod) -> Self {
        Self::Product(product)
    }
}

const SPHERICAL: &str = "srf";
const NYSTROM: &str = "nystrom";
const EXACT: &str = "exact";
const MACLAURIN: &str = "maclaurin-";
const FIELDS: [(&str, Field); 3] = [("ctr-", Field::ComplexToReal), ("complex-", Field::Complex), ("", Field::Real)];
const SHAPES: [(&str, Shape); 3] = [("hierarchical-", Shape::Tree), ("chain-", Shape::Chain), ("", Shape::Flat)];

impl Method {
    /// A flat product without CRAFT.
    #[must_use]
    pub const fn flat(base: Base, field: Field) -> Self {
        Self::Product(ProductMethod { base, field, shape: Shape::Flat, craft: None })
    }

    /// Every method, with the paper's E for CRAFT maps.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut methods: Vec<Self> = Self::products().into_iter().map(Self::Product).collect();
        methods.extend(Self::products().into_iter().map(Self::Maclaurin).filter(Self::is_possible));
        methods.extend(Frequencies::ALL.map(|(_, frequencies)| Self::Fourier(frequencies)));
        methods.extend([Self::Nystrom, Self::Exact, Self::Spherical]);
        methods
    }

    /// Every product of projections, with the paper's E for CRAFT maps.
    #[must_use]
    pub fn products() -> Vec<ProductMethod> {
        let mut products = Vec::new();
        for craft in [None, Some(ProductMethod::DEFAULT_CRAFT)] {
            for (_, shape) in SHAPES {
                for base in Base::all() {
                    let fields = FIELDS.map(|(_, field)| ProductMethod { base, field, shape, craft });
                    products.extend(fields.into_iter().filter(|&product| Self::Product(product).is_possible()));
                }
            }
        }
        products
    }

    /// The product of projections, if the method is one.
    #[must_use]
    pub fn product(self) -> Option<ProductMethod> {
        if let Self::Product(product) = self { Some(product) } else { None }
    }

    /// The base of its projections, if it is a product of projections.
    #[must_use]
    pub fn base(self) -> Option<Base> {
        self.product().map(|product| product.base)
    }

    /// The numbers it computes with and returns.
    #[must_use]
    pub fn field(self) -> Field {
        self.product().map_or(Field::Real, |product| product.field)
    }

    /// How its projections combine, if it is a product of projections.
    #[must_use]
    pub fn shape(self) -> Option<Shape> {
        self.product().map(|product| product.shape)
    }

    /// The up-projection dimension of a CRAFT map.
    #[must_use]
    pub fn craft(self) -> Option<usize> {
        self.product().and_then(|product| product.craft)
    }

    /// The same method with another up-projection dimension, if it is a CRAFT map.
    #[must_use]
    pub fn with_craft_dim(self, up_dim: usize) -> Self {
        match self {
            Self::Product(product) => Self::Product(ProductMethod { craft: product.craft.map(|_| up_dim), ..product }),
            _ => self,
        }
    }

    /// Whether the spec of a sketch must be fitted to rows before it can be drawn, by [`Spec::fit_to`](super::Spec::fit_to).
    #[must_use]
    pub fn looks_at_rows(self) -> bool {
        matches!(self, Self::Maclaurin(_) | Self::Nystrom)
    }

    /// CRAFT projects real features, and so do the terms of a sum.
    pub(super) fn is_possible(&self) -> bool {
        match self {
            Self::Maclaurin(product) => product.craft.is_none() && product.field != Field::Complex,
            _ => self.craft().is_none() || self.field() != Field::Complex,
        }
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        /// Strips the first matching prefix; each list ends with the empty one.
        fn strip<'a, V: Copy>(name: &'a str, prefixes: &[(&str, V)]) -> Option<(&'a str, V)> {
            prefixes.iter().find_map(|&(prefix, value)| Some((name.strip_prefix(prefix)?, value)))
        }
        if let Some(&(_, frequencies)) = Frequencies::ALL.iter().find(|(listed, _)| *listed == name) {
            return Ok(Self::Fourier(frequencies));
        }
        if let Some(&(_, single)) = [(SPHERICAL, Self::Spherical), (NYSTROM, Self::Nystrom), (EXACT, Self::Exact)]
            .iter()
            .find(|(listed, _)| *listed == name)
        {
            return Ok(single);
        }
        let (kind, product): (fn(ProductMethod) -> Self, &str) =
            name.strip_prefix(MACLAURIN).map_or((Self::Product, name), |product| (Self::Maclaurin, product));
        let (rest, craft) =
            strip(product, &[("craft-", Some(ProductMethod::DEFAULT_CRAFT)), ("", None)]).unwrap_or((product, None));
        let parsed = strip(rest, &SHAPES).and_then(|(rest, shape)| {
            let (rest, field) = strip(rest, &FIELDS)?;
            let base = Base::all().find(|base| base.name() == rest)?;
            Some(kind(ProductMethod { base, field, shape, craft }))
        });
        parsed.ok_or_else(|| {
            let bases = Base::all().map(Base::name).collect::<Vec<_>>().join(", ");
            let expected = format!(
                "[maclaurin-|craft-][hierarchical-|chain-][ctr-|complex-]BASE with BASE one of {bases} (for example \
                 ctr-product-srht), or rff, orf, sorf, {NYSTROM}, {EXACT} or {SPHERICAL}"
            );
            Error::invalid(Argument::Method, expected, format!("\"{name}\""))
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn name_of<V: PartialEq>(names: &[(&'static str, V)], value: &V) -> &'static str {
            names.iter().find(|(_, listed)| listed == value).map_or("", |(name, _)| name)
        }
        let (sum, ProductMethod { base, field, shape, craft }) = match self {
            Self::Product(product) => ("", product),
            Self::Maclaurin(product) => (MACLAURIN, product),
            Self::Fourier(frequencies) => return formatter.pad(name_of(&Frequencies::ALL, frequencies)),
            Self::Spherical => return formatter.pad(SPHERICAL),
            Self::Nystrom => return formatter.pad(NYSTROM),
            Self::Exact => return formatter.pad(EXACT),
        };
        let craft = if craft.is_some() { "craft-" } else { "" };
        let (shape, field) = (name_of(&SHAPES, shape), name_of(&FIELDS, field));
        formatter.pad(&format!("{sum}{craft}{shape}{field}{}", base.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_and_prints() {
        let mut names = 0;
        for craft in ["", "craft-"] {
            for shape in ["", "hierarchical-", "chain-"] {
                for field in ["", "ctr-", "complex-"] {
                    for base in ["gaussian", "rademacher", "product-srht", "tensor-srht", "tensor-sketch"] {
                        let name = format!("{craft}{shape}{field}{base}");
                        assert_eq!(name.parse::<Method>().unwrap().to_string(), name);
                        names += 1;
                    }
                }
            }
        }
        assert_eq!(names, 90);
        for method in Method::all() {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
    }

    #[test]
    fn unknown_names_are_errors_that_list_the_known() {
        for name in
            ["", "srht", "ctr-", "ctr-ctr-gaussian", "Gaussian", "gaussian ", "ctr-hierarchical-gaussian", "ctr-srf"]
        {
            let message = name.parse::<Method>().unwrap_err().to_string();
            assert!(message.contains("product-srht") && message.contains(&format!("\"{name}\"")), "{message}");
        }
    }
}
