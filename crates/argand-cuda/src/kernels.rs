//! The kernels as PTX, made by `make kernels` from `kernels/*.cu`.

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../kernels/ptx/", $name, ".ptx")))),*]
    };
}

/// The name of a module as it is listed, and its text.
pub(crate) fn module(name: &str) -> Option<(&'static str, &'static str)> {
    MODULES.iter().copied().find(|(listed, _)| *listed == name)
}

/// Name and text of every module.
const MODULES: &[(&str, &str)] = modules![
    "algebra_f64",
    "steps_f32",
    "steps_f64",
    "srht_5",
    "srht_6",
    "srht_7",
    "srht_8",
    "srht_9",
    "srht_10",
    "srht_11",
    "srht_adjoint_5",
    "srht_adjoint_6",
    "srht_adjoint_7",
    "srht_adjoint_8",
    "srht_adjoint_9",
    "srht_adjoint_10",
    "srht_adjoint_11",
    "tensor_sketch_6",
    "tensor_sketch_7",
    "tensor_sketch_8",
    "tensor_sketch_9",
    "tensor_sketch_10",
    "tensor_sketch_11",
    "tensor_sketch_12",
    "tensor_sketch_13",
];
