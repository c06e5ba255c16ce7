//! Random features for polynomial kernels and tensor products, Gaussian kernels and power series: rows of numbers in, `D` real features out.
//!
//! Inner products of features approximate
//!
//! ```text
//! (gamma <x, y> + coef0)^degree        or, for p different inputs,        <x1, y1> <x2, y2> ... <xp, yp>
//! ```
//!
//! without ever forming the tensor product. Whatever is linear in the features, such as ridge regression, a Gaussian process or the last
//! layer of a network, then learns from products of columns, in time linear in the number of rows.
//!
//! Argand implements the *Complex-to-Real* sketches of "Complex-to-Real Sketches for Tensor Products with Applications to the
//! Polynomial Kernel" (Wacker, Ohana and Filippone, AISTATS 2023), called *the paper* throughout, and what that paper compares
//! them with. Complex projections inside and real features outside have a lower error than real projections of the same size, except
//! on data where many products xᵢyᵢ differ in sign.
//!
//! # When to use it
//!
//! * There are many rows. For n of them, kernel methods take time n³ and memory n²; on D features they take time nD² and memory D².
//! * Products of columns matter, and there are too many of them: d columns have about dᵖ/p! products of degree p.
//! * Several tables describe the same things, and what counts is how they go together: see [tensor products](#different-inputs).
//!
//! # When not to
//!
//! * **Few columns.** If all products of degree p are no more than the features you would ask for, compute them: they are exact. 16 columns have
//!   136 products of degree 2 and 816 of degree 3: the method `exact`. [`plan`](plan::plan) counts them, as [`Plan::exact_features`](plan::Plan::exact_features).
//! * **Few rows.** With a few thousand of them, the exact kernel fits into memory, and there is nothing to approximate.
//! * **Few features, and data that lie close to a low-dimensional space.** Random features have an error of order 1/√D on any data. Nyström's
//!   method looks at the data, and with a few hundred features it is then often better: the method `nystrom`.
//! * **High degree.** The variance of flat products grows exponentially with the degree. From degree 3 on, try `hierarchical-`, `chain-` and `maclaurin-` methods.
//!
//! # From a spec to features
//!
//! | | what it is | |
//! |---|---|---|
//! | [`Spec`] | what a sketch is, as plain data: kernel, inputs, features, method, seed; JSON by [`Spec::to_json`] | [`Spec::draw`] draws it |
//! | [`Drawn`] | the random numbers, as plain data: joins, signs, sampled coordinates, buckets, weights row by row; the same spec gives the same ones on every machine, for `f32` and `f64` | [`Drawn::sketch`] makes it ready for this processor |
//! | [`Sketch`] | a drawn sketch with the kernels that run it; [`Spec::sketch`] takes both steps at once | it is a [`FeatureMap`] |
//! | [`FeatureMap`] | what everything else calls: [`transform`](FeatureMap::transform), [`transform_into`](FeatureMap::transform_into), [`vjp_into`](FeatureMap::vjp_into), and sums over [`Groups`] of rows | it reads [`Input`]s |
//! | [`Input`] | a table that is yours: [`Rows`] or [`SparseRows`], `f32` or `f64` | [`interop`] lends those of other libraries |
//!
//! A back end reads a [`Drawn`] and nothing else: see [`draw`].
//!
//! ## Features
//!
//! ```
//! use argand::{FeatureMap, Rows, Spec};
//!
//! let x = [1.0, 2.0, 3.0, 0.5, 0.5, 0.5]; // 2 rows of 3 numbers
//! let spec = Spec::polynomial(3).with_degree(2).with_coef0(1.0).with_features(4096).with_seed(7);
//! let sketch = spec.sketch::<f64>()?;
//! let features = sketch.transform(&[Rows::new(&x, 2, 3)?.into()])?;
//!
//! let estimate: f64 = features[..4096].iter().zip(&features[4096..]).map(|(a, b)| a * b).sum();
//! assert!((estimate - 16.0).abs() < 1.2); // (1·½ + 2·½ + 3·½ + 1)² = 16; its standard deviation is 0.38
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! Use one sketch for all rows that meet each other: those to learn from and those to predict. `transform_into` writes into a buffer of
//! yours, whose rows may be further apart than they are long.
//!
//! ## Different inputs
//!
//! ```
//! use argand::{FeatureMap, Rows, Spec};
//!
//! let (images, texts) = ([1.0, 2.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]); // 2 rows of 2 and of 3 numbers
//! let sketch = Spec::tensor_product(&[2, 3]).with_features(4096).sketch::<f64>()?;
//! let features = sketch.transform(&[Rows::new(&images, 2, 2)?.into(), Rows::new(&texts, 2, 3)?.into()])?;
//!
//! let estimate: f64 = features[..4096].iter().zip(&features[4096..]).map(|(a, b)| a * b).sum();
//! assert!((estimate - 4.0).abs() < 0.1); // ⟨(1, 2), (0, 1)⟩ · ⟨(1, 0, 1), (1, 1, 1)⟩ = 2 · 2
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! ## Gradients
//!
//! [`vjp_into`](FeatureMap::vjp_into) is the adjoint of the map's derivative: from the gradient with respect to the features to the
//! gradient with respect to the rows, for training what comes before the sketch.
//!
//! ```
//! use argand::{FeatureMap, Rows, RowsMut, Spec};
//!
//! let x = [1.0, 2.0, 3.0];
//! let input = Rows::new(&x, 1, 3)?.into();
//! let sketch = Spec::polynomial(3).with_degree(2).with_features(4096).sketch::<f64>()?;
//! let features = sketch.transform(&[input])?;
//!
//! // ½‖Φ(x)‖² is about ½‖x‖⁴. Its gradient is Φ(x) with respect to the features, and about 2‖x‖²x with respect to x.
//! let mut gradient = [0.0; 3];
//! sketch.vjp_into(&[input], Rows::new(&features, 1, 4096)?, &mut [RowsMut::new(&mut gradient, 1, 3)?])?;
//! assert!(gradient.iter().zip(x).all(|(got, x)| (got - 28.0 * x).abs() < 2.0));
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! ## Groups of rows
//!
//! [`transform_pooled`](FeatureMap::transform_pooled) adds up the features of consecutive rows that belong together, such as the
//! positions of an image or the tokens of a text, and never stores those of single rows. Inner products of such sums approximate sums of
//! kernels: at degree 2, this is compact bilinear pooling. [`vjp_pooled_into`](FeatureMap::vjp_pooled_into) is its adjoint.
//!
//! ```
//! use argand::{FeatureMap, Groups, Rows, Spec};
//!
//! let tokens = [1.0, 0.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]; // 3 rows of 3 numbers
//! let texts = Groups::from_starts(&[0, 2, 3])?; // a text of 2 tokens, and one of 1
//! let sketch = Spec::polynomial(3).with_degree(2).with_features(4096).sketch::<f64>()?;
//! let pooled = sketch.transform_pooled(&[Rows::new(&tokens, 3, 3)?.into()], &texts)?;
//!
//! let estimate: f64 = pooled[..4096].iter().zip(&pooled[4096..]).map(|(a, b)| a * b).sum();
//! assert!((estimate - 13.0).abs() < 1.2); // ⟨(1, 0, 2), (1, 1, 1)⟩² + ⟨(0, 1, 1), (1, 1, 1)⟩² = 9 + 4
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! ## Sparse rows
//!
//! ```
//! use argand::{FeatureMap, SparseRows, Spec};
//!
//! // 2 rows of a million columns: 3 at column 10; 2 at column 10 and 1 at column 999,999.
//! let (row_starts, columns_of, values) = ([0_u32, 1, 3], [10_u32, 10, 999_999], [3.0_f32, 2.0, 1.0]);
//! let rows = SparseRows::new(&row_starts[..], &columns_of[..], &values, 1_000_000)?;
//!
//! // `tensor-sketch` costs what the entries cost. The default would transform all columns, zeros included.
//! let spec = Spec::polynomial(1_000_000).with_features(1024).with_method("tensor-sketch".parse()?);
//! let features = spec.sketch::<f32>()?.transform(&[rows.into()])?;
//!
//! let estimate: f32 = features[..1024].iter().zip(&features[1024..]).map(|(a, b)| a * b).sum();
//! assert!((estimate - 36.0).abs() < 1.0); // (3 · 2)²
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! ## Errors, before they are made
//!
//! The variance of every estimate has a closed form for most methods, so the error on your data is known before anything is drawn.
//! [`theory`] has the formulas. [`plan`](plan::plan) turns them round: it asks for an error, and answers with a method and a number of
//! features. [`verify`](verify::verify) tests sketches against the formulas, on your rows.
//!
//! ```
//! use argand::theory::{Sampling, expected_error, kernel_error};
//! use argand::{FeatureMap, Rows, Spec};
//!
//! let x: Vec<f32> = (0..100 * 16).map(|i| (i * 37 % 101) as f32 / 300.0).collect();
//! let inputs = [Rows::new(&x, 100, 16)?.into()];
//! let spec = Spec::polynomial(16).with_degree(3).with_features(1024);
//! let expected = expected_error(&spec, &inputs, &Sampling::default())?.relative;
//!
//! let features = spec.sketch::<f32>()?.transform(&inputs)?;
//! let error = kernel_error(&spec, &inputs, Rows::new(&features, 100, 1024)?)?;
//! assert!((expected - 0.108).abs() < 1e-3 && error < 2.0 * expected);
//! # Ok::<(), argand::Error>(())
//! ```
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | degree p, dimension d, features D | as in the paper. *Features* always counts the real output columns |
//! | [kernel](Kernel) | `(gamma <x, y> + coef0)^degree`, with scikit-learn's names; or a Gaussian, an exponential, a power series |
//! | [base](Base) | what one projection is made of: `gaussian`, `rademacher`, `product-srht`, `tensor-srht`, `tensor-sketch` |
//! | [field](Field) | which numbers it computes with: real, `complex-`, or `ctr-`: complex inside, \[Re…, Im…\] outside |
//! | [shape](Shape) | how p projections combine: flat, `hierarchical-` (a tree) or `chain-` |
//! | craft | up to E features first, then down to D by one more projection; `craft-` |
//! | [method](Method) | the name of a combination, used everywhere: `ctr-product-srht`, `hierarchical-ctr-product-srht`, `srf`, … |
//! | [fit] | what a method finds out about rows before it is drawn: for `maclaurin-` and `nystrom` |
//! | [seed](Spec::with_seed), [stream](rng) | where the random numbers come from; one stream per purpose and factor |
//!
//! The default is `ctr-product-srht`: fast, and accurate at low degree.
//!
//! # Threads and memory
//!
//! Rows are computed in parallel on the current rayon pool. Features do not depend on the number of threads, to the last bit.
//! Beyond the sketch itself ([`Spec::memory_bytes`], limited by [`Spec::sketch_within`]), memory is one block of rows per thread.
//! Bad input is an [`Error`] that names the argument, before any work is done.
//!
//! The folder `examples` has a short program for each use. `cargo` features `ndarray`, `faer`, `arrow` and `sprs`, all off by default, lend
//! tables of these libraries: see [`interop`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod draw;
mod error;
pub mod fit;
pub mod interop;
mod lanes;
mod map;
mod memory;
pub mod plan;
mod projection;
pub mod rng;
mod rows;
mod scalar;
mod simd;
mod spec;
pub mod spherical;
pub mod theory;
pub mod transform;
pub mod verify;

pub use draw::Drawn;
pub use error::{Advice, Argument, Cause, DeviceFault, Error, FileFault};
pub use map::{DEFAULT_MEMORY_LIMIT, FeatureMap, Sketch, check_vanishing};
pub use rows::{Groups, Indices, Input, OwnedRows, Rows, RowsMut, SparseRows, check_finite, check_shapes, checked};
pub use scalar::Scalar;
pub use spec::{
    Base, Field, Frequencies, InputDims, Kernel, Method, Polynomial, ProductMethod, Shape, Spec, json_checksum,
};

/// The examples of the documents, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/reference/rust.md")]
pub struct Documents;
