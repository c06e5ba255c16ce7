//! The kernels as PTX, made by `make kernels` from `kernels/*.cu`.

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../kernels/ptx/", $name, ".ptx")))),*]
    };
}

/// The text of a module.
pub(crate) fn text(module: &str) -> Option<&'static str> {
    MODULES.iter().find(|(listed, _)| *listed == module).map(|&(_, text)| text)
}

/// The text of one kernel: the head of its module, and itself.
pub(crate) fn alone(text: &str, kernel: &str) -> String {
    const ENTRY: &str = ".visible .entry ";
    let begin = text.find(&format!("{ENTRY}{kernel}(")).unwrap_or_else(|| unreachable!("a kernel of this module"));
    let end = text[begin + 1..].find(ENTRY).map_or(text.len(), |at| begin + 1 + at);
    let head = text.find(ENTRY).unwrap_or(begin);
    [&text[..head], &text[begin..end]].concat()
}

/// Name and text of every module.
const MODULES: &[(&str, &str)] = modules![
    "algebra_f64",
    "parts_f32",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_by_themselves_are_their_module() {
        for (name, text) in MODULES {
            let names: Vec<&str> =
                text.split(".visible .entry ").skip(1).filter_map(|part| part.split('(').next()).collect();
            assert!(!names.is_empty(), "{name}");
            let head = text.find(".visible .entry ").expect("kernels");
            let kernels: String = names.iter().map(|kernel| alone(text, kernel)[head..].to_owned()).collect();
            assert_eq!(kernels, text[head..], "{name}");
        }
    }
}
