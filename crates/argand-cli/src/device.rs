//! `--device`: where sketches run.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use argand::draw::Drawn;
use argand::{Error, FeatureMap};
use argand_cuda::{CudaSketch, Device, Real};
use argand_learn::{CudaEngine, Engine, Pipeline, Recipe};

use crate::failure::Failure;
use crate::info::{bytes, table_of};
use crate::print;

/// The processor, or a GPU by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu,
    Cuda(usize),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()));
        match name.split_once(':') {
            None if name == "cpu" => Some(Self::Cpu),
            None if name == "cuda" => Some(Self::Cuda(0)),
            Some(("cuda", digits)) => number(digits).map(Self::Cuda),
            _ => None,
        }
        .ok_or_else(|| "expected cpu, cuda or cuda:N, for example cuda:1".to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// The option.
#[derive(Debug, clap::Args)]
pub(crate) struct DeviceArguments {
    /// Where to compute: cpu, or a GPU as cuda or cuda:N. `argand info --devices` lists them.
    #[arg(long, value_name = "DEVICE", default_value_t = Place::Cpu)]
    device: Place,
}

/// An opened device.
#[derive(Debug)]
pub(crate) enum Opened {
    Cpu,
    /// Learning runs on its engine, where there is one.
    Cuda {
        device: Device,
        engine: Option<Arc<dyn Engine>>,
    },
}

impl DeviceArguments {
    /// Opens the device, before any other work.
    pub(crate) fn open(&self) -> Result<Opened, Failure> {
        match self.device {
            Place::Cpu => Ok(Opened::Cpu),
            Place::Cuda(number) => {
                let open = || -> Result<Opened, Error> {
                    let device = Device::open(number)?;
                    // What a command was given it uses to its end.
                    device.keep_scratch(device.info().memory)?;
                    let engine = CudaEngine::find(&device)?.map(|engine| Arc::new(engine) as Arc<dyn Engine>);
                    Ok(Opened::Cuda { device, engine })
                };
                open().map_err(|error| Failure::Input(format!("--device: {error}")))
            }
        }
    }
}

impl Opened {
    /// A drawn sketch, ready to run.
    pub(crate) fn map<T: Real>(&self, drawn: &Drawn, memory_limit: u64) -> Result<Box<dyn FeatureMap<T>>, Error> {
        match self {
            Self::Cpu => Ok(Box::new(drawn.sketch_within::<T>(memory_limit)?)),
            Self::Cuda { device, .. } => Ok(Box::new(CudaSketch::<T>::new(device, drawn)?)),
        }
    }

    /// A recipe, ready to run.
    pub(crate) fn pipeline(&self, recipe: &Recipe) -> Result<Pipeline<f32>, Error> {
        match self.engine() {
            Some(engine) => recipe.pipeline_with(engine),
            None => recipe.pipeline_on(|drawn| self.map(drawn, argand::DEFAULT_MEMORY_LIMIT)),
        }
    }

    pub(crate) fn is_cpu(&self) -> bool {
        matches!(self, Self::Cpu)
    }

    /// What learning runs on, if not the processor.
    pub(crate) fn engine(&self) -> Option<&Arc<dyn Engine>> {
        if let Self::Cuda { engine, .. } = self { engine.as_ref() } else { None }
    }

    /// Lets a model predict where its features are computed.
    pub(crate) fn take(&self, model: &mut dyn argand_learn::Model) {
        if let Some(engine) = self.engine() {
            model.run_on(engine);
        }
    }
}

/// Lists the devices.
pub(crate) fn list() -> Result<(), Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = vec![("cpu".to_owned(), format!("{threads} threads"))];
    match argand_cuda::count() {
        Err(error) => lines.push(("cuda".to_owned(), error.to_string().trim_start_matches("cuda: ").to_owned())),
        Ok(0) => lines.push(("cuda".to_owned(), "a driver, but no GPU".to_owned())),
        Ok(count) => {
            for number in 0..count {
                let what = match Device::open(number) {
                    Ok(device) => {
                        let info = device.info();
                        let (major, minor) = info.compute_capability;
                        let driver = format!("{}.{}", info.driver / 1000, info.driver % 1000 / 10);
                        format!(
                            "{}, {} of memory, compute capability {major}.{minor}, driver for CUDA {driver}",
                            info.name,
                            bytes(info.memory)
                        )
                    }
                    Err(error) => error.to_string(),
                };
                lines.push((Place::Cuda(number).to_string(), what));
            }
        }
    }
    let lines: Vec<(&str, String)> = lines.iter().map(|(name, what)| (name.as_str(), what.clone())).collect();
    print(&table_of(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        assert_eq!("cpu".parse(), Ok(Place::Cpu));
        assert_eq!("cuda".parse(), Ok(Place::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(Place::Cuda(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cpu:0", "CUDA"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
        assert_eq!(Place::Cuda(2).to_string().parse(), Ok(Place::Cuda(2)));
    }
}
