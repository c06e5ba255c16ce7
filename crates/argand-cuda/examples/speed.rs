//! Times of sketches on a GPU beside copies of the same bytes: `make bench-gpu`.
//!
//! `speed [--json FILE] [NAME]…` runs all sections or those named; other names choose sketches whose "method d p D" contains one.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use argand::{Groups, Spec};
use argand_cuda::{Algebra, Buffer, CudaSketch, Device, DeviceRows, Element, Products, Stream};

type Error = Box<dyn std::error::Error>;
type Section = fn(&mut Bench) -> Result<(), Error>;

/// What is measured, in this order: a new measurement is a function that ends with [`Bench::record`], and a line here.
const SECTIONS: [(&str, Section); 6] = [
    ("methods", methods),
    ("backward", backward),
    ("one-call", one_call),
    ("pooled", pooled),
    ("gram", gram),
    ("growth", growth),
];

const F32: Element = Element::F32;
const BF16: Element = Element::Bf16;

/// The sketch whose sizes grow, one at a time.
const BASE: Case = case("ctr-product-srht", 65_536, 1024, 3, 8192, F32);
const GROWING: [&str; 2] = ["ctr-product-srht", "tensor-sketch"];
const ROWS: [usize; 5] = [1024, 4096, 16_384, 65_536, 262_144];
const DIMS: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
const DEGREES: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const FEATURES: [usize; 7] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768];

/// Bytes of the largest input, and of the largest features.
const MOST_IN: usize = 262_144 * 1024 * 4;
const MOST_OUT: usize = 262_144 * 8192 * 4;

const METHODS: [Case; 20] = [
    BASE,
    case("ctr-product-srht", 65_536, 1024, 7, 8192, F32),
    case("ctr-product-srht", 65_536, 1024, 3, 8192, BF16),
    case("ctr-product-srht", 65_536, 1024, 7, 8192, BF16),
    case("ctr-product-srht", 1000, 1024, 3, 2048, F32),
    case("product-srht", 65_536, 1024, 3, 8192, F32),
    case("ctr-tensor-srht", 65_536, 1024, 3, 8192, F32),
    case("ctr-product-srht", 65_536, 784, 3, 8192, F32),
    case("ctr-product-srht", 65_536, 512, 3, 8192, F32),
    case("ctr-product-srht", 65_536, 256, 3, 8192, F32),
    case("ctr-product-srht", 65_536, 64, 3, 4096, F32),
    case("ctr-product-srht", 65_536, 2048, 3, 8192, F32),
    case("tensor-sketch", 65_536, 1024, 3, 8192, F32),
    case("gaussian", 65_536, 1024, 3, 8192, F32),
    case("ctr-gaussian", 65_536, 1024, 3, 8192, F32),
    case("rademacher", 65_536, 1024, 3, 8192, F32),
    case("ctr-rademacher", 65_536, 1024, 3, 8192, F32),
    case("hierarchical-ctr-product-srht", 65_536, 1024, 4, 8192, F32),
    case("craft-ctr-product-srht", 65_536, 1024, 3, 4096, F32),
    case("srf", 65_536, 1024, 3, 8192, F32),
];

/// A sketch and the size of its input.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    method: &'static str,
    rows: usize,
    dim: usize,
    degree: usize,
    features: usize,
    element: Element,
}

const fn case(method: &'static str, rows: usize, dim: usize, degree: usize, features: usize, element: Element) -> Case {
    Case { method, rows, dim, degree, features, element }
}

impl Case {
    fn sketch(&self, device: &Device) -> Result<CudaSketch<f32>, Error> {
        let mut spec = Spec::polynomial(self.dim)
            .with_degree(self.degree)
            .with_features(self.features)
            .with_method(self.method.parse()?);
        if self.method == "srf" {
            spec = spec.with_gamma(0.5).with_coef0(0.5);
        }
        Ok(CudaSketch::new(device, &spec.draw()?)?)
    }

    /// Bytes of the input and the features.
    fn bytes(&self) -> usize {
        self.rows * (self.dim + self.features) * self.element.bytes()
    }
}

/// Milliseconds.
struct Times {
    best: f64,
    median: f64,
}

impl Times {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { best: times[0], median: times[times.len() / 2] }
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Times of one queued call: 15 rounds of 5 ms, or as many as fit into 0.3 s but at least 5.
fn time(stream: &Stream, mut call: impl FnMut() -> Result<(), argand::Error>) -> Result<Times, Error> {
    let mut round = |calls: u32| -> Result<f64, Error> {
        let begun = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        stream.synchronize()?;
        Ok(milliseconds(begun) / f64::from(calls))
    };
    round(1)?;
    let once = round(1)?;
    let calls = [1, 2, 5, 10, 20, 50, 100, 200, 500].into_iter().find(|&calls| f64::from(calls) * once >= 5.0);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < 5 || (times.len() < 15 && milliseconds(begun) < 300.0) {
        times.push(round(calls.unwrap_or(500))?);
    }
    Ok(Times::of(times))
}

/// A device, memory for every measurement, and where results go.
struct Bench {
    device: Device,
    stream: Stream,
    /// Random numbers from −1 to 1.
    x: Buffer,
    x_bf16: Buffer,
    out: Buffer,
    other: Buffer,
    json: Option<File>,
    /// Parts of the names of sketches to measure; all if empty.
    sketches: Vec<String>,
}

impl Bench {
    fn new(sketches: Vec<String>) -> Result<Self, Error> {
        let device = Device::open(0)?;
        // A block of random numbers over and over: drawing all of them would take longer than the measurements.
        let random = |at: usize| ((at.wrapping_mul(2_654_435_761) >> 7) % 2001) as f32 / 1000.0 - 1.0;
        let block: Vec<f32> = (0..1 << 20).map(random).collect();
        let halves: Vec<u16> = block.iter().map(|number| (number.to_bits() >> 16) as u16).collect();
        Ok(Self {
            stream: device.stream()?,
            x: device.upload(&block.repeat(MOST_IN / 4 / block.len()))?,
            x_bf16: device.upload(&halves.repeat(MOST_IN / 8 / block.len()))?,
            out: device.allocate(MOST_OUT)?,
            other: device.allocate((MOST_IN + MOST_OUT) / 2)?,
            device,
            json: None,
            sketches,
        })
    }

    /// Whether this was asked for.
    fn wants(&self, case: &Case) -> bool {
        let name = format!("{} {} {} {}", case.method, case.dim, case.degree, case.features);
        self.sketches.is_empty() || self.sketches.iter().any(|part| name.contains(part))
    }

    fn input(&self, case: &Case) -> Result<DeviceRows, Error> {
        let buffer = if case.element == BF16 { &self.x_bf16 } else { &self.x };
        view(buffer, case.element, case.rows, case.dim)
    }

    fn features(&self, case: &Case) -> Result<DeviceRows, Error> {
        view(&self.out, case.element, case.rows, case.features)
    }

    /// Milliseconds of a copy that reads and writes this many bytes together; in proportion if they exceed the buffers.
    fn copy(&self, bytes: usize) -> Result<f64, Error> {
        let copied = (bytes / 2).min(self.other.bytes());
        let times = time(&self.stream, || self.stream.copy(&self.out, &self.other, copied))?;
        Ok(times.best * (bytes / 2) as f64 / copied as f64)
    }

    /// Writes one line of JSON. Values are numbers, or text in quotes.
    fn write(&mut self, fields: &[(&str, String)]) -> Result<(), Error> {
        if let Some(file) = &mut self.json {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
            writeln!(file, "{{{}}}", fields.join(", "))?;
        }
        Ok(())
    }

    /// Prints and writes a measurement, and that of a copy that moves as many bytes.
    fn record(
        &mut self,
        kind: &str,
        case: &Case,
        times: &Times,
        bytes: usize,
        more: &[(&str, String)],
    ) -> Result<(), Error> {
        let Case { method, rows, dim, degree, features, element } = *case;
        let floor = self.copy(bytes)?;
        let element = match element {
            Element::F32 => "float32",
            Element::F16 => "float16",
            Element::Bf16 => "bfloat16",
            Element::F64 => "float64",
            _ => "other",
        };
        let Times { best, median } = times;
        let notes: Vec<String> = more.iter().map(|(name, value)| format!(", {name} {value}")).collect();
        println!(
            "{kind}: {method} {rows} x {dim}, p = {degree}, D = {features}, {element}: {best:.4} ms (median {median:.4}), copy {floor:.4}, ratio {:.2}{}",
            best / floor,
            notes.concat(),
        );
        let mut fields = vec![
            ("kind", quoted(kind)),
            ("method", quoted(method)),
            ("rows", rows.to_string()),
            ("d", dim.to_string()),
            ("p", degree.to_string()),
            ("D", features.to_string()),
            ("element", quoted(element)),
            ("best_ms", rounded(*best)),
            ("median_ms", rounded(*median)),
            ("floor_ms", rounded(floor)),
        ];
        fields.extend_from_slice(more);
        self.write(&fields)
    }

    /// The features of a case.
    fn forward(&mut self, kind: &str, case: &Case) -> Result<(), Error> {
        if !self.wants(case) {
            return Ok(());
        }
        let begun = Instant::now();
        let sketch = case.sketch(&self.device)?;
        let setup = milliseconds(begun);
        let (x, out) = (self.input(case)?, self.features(case)?);
        let times = time(&self.stream, || sketch.transform_on(&self.stream, &[x], &out))?;
        sketch.finish(&self.stream)?;
        let more = [("fused", sketch.is_fused().to_string()), ("setup_ms", rounded(setup))];
        self.record(kind, case, &times, case.bytes(), &more)
    }
}

fn quoted(text: impl Display) -> String {
    format!("\"{text}\"")
}

fn rounded(milliseconds: f64) -> String {
    format!("{milliseconds:.5}")
}

#[allow(unsafe_code, reason = "views of own buffers")]
fn view(buffer: &Buffer, element: Element, rows: usize, columns: usize) -> Result<DeviceRows, Error> {
    assert!(buffer.bytes() >= rows * columns * element.bytes());
    // SAFETY: the buffer is long enough and outlives the work.
    Ok(unsafe { DeviceRows::from_address(buffer.address(), element, rows, columns, columns) }?)
}

/// Features of every kind of sketch.
fn methods(bench: &mut Bench) -> Result<(), Error> {
    METHODS.iter().try_for_each(|case| bench.forward("methods", case))
}

/// Features, then their adjoint; the features serve as its cotangent.
fn backward(bench: &mut Bench) -> Result<(), Error> {
    let case = BASE;
    if !bench.wants(&case) {
        return Ok(());
    }
    let sketch = case.sketch(&bench.device)?;
    let (x, out) = (bench.input(&case)?, bench.features(&case)?);
    let gradient = view(&bench.other, case.element, case.rows, case.dim)?;
    let forward = time(&bench.stream, || sketch.transform_on(&bench.stream, &[x], &out))?;
    let both = time(&bench.stream, || {
        sketch.transform_on(&bench.stream, &[x], &out)?;
        sketch.vjp_on(&bench.stream, &[x], &out, &[gradient])
    })?;
    sketch.finish(&bench.stream)?;
    // The adjoint reads the input and the cotangent, and writes the gradient.
    let bytes = 2 * case.bytes() + case.rows * case.dim * case.element.bytes();
    bench.record("backward", &case, &both, bytes, &[("forward_ms", rounded(forward.best))])
}

/// A small batch: time on the GPU, and time until the host may go on. Calls queue behind copies, so that the GPU never waits for the host.
fn one_call(bench: &mut Bench) -> Result<(), Error> {
    const CALLS: u32 = 200;
    let case = case("ctr-product-srht", 1000, 1024, 3, 2048, F32);
    if !bench.wants(&case) {
        return Ok(());
    }
    let sketch = case.sketch(&bench.device)?;
    let (x, out) = (bench.input(&case)?, bench.features(&case)?);
    let stream = &bench.stream;
    let copies = || (0..3).try_for_each(|_| stream.copy(&bench.out, &bench.other, bench.other.bytes()));
    let before = time(stream, copies)?;
    let (mut gpu, mut host) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        let begun = Instant::now();
        copies()?;
        let queued = Instant::now();
        for _ in 0..CALLS {
            sketch.transform_on(stream, &[x], &out)?;
        }
        host.push(milliseconds(queued) / f64::from(CALLS));
        stream.synchronize()?;
        gpu.push((milliseconds(begun) - before.median) / f64::from(CALLS));
    }
    sketch.finish(stream)?;
    let host = Times::of(host);
    let more = [("host_ms", rounded(host.best)), ("host_median_ms", rounded(host.median))];
    bench.record("one-call", &case, &Times::of(gpu), case.bytes(), &more)
}

/// 784 positions of 256 images with 512 channels, pooled inside the kernel, beside the features of all positions without their sum.
fn pooled(bench: &mut Bench) -> Result<(), Error> {
    let (images, positions) = (256, 784);
    let case = case("ctr-product-srht", images * positions, 512, 2, 8192, F32);
    if !bench.wants(&case) {
        return Ok(());
    }
    let sketch = case.sketch(&bench.device)?;
    let groups = Groups::even(case.rows, positions)?;
    let (x, all) = (bench.input(&case)?, bench.features(&case)?);
    let sums = view(&bench.out, case.element, images, case.features)?;
    let stream = &bench.stream;
    let pooled = time(stream, || sketch.transform_pooled_on(stream, &[x], &groups, &sums))?;
    let features = time(stream, || sketch.transform_on(stream, &[x], &all))?;
    sketch.finish(stream)?;
    let bytes = (case.rows * case.dim + images * case.features) * case.element.bytes();
    let more = [("groups", images.to_string()), ("features_ms", rounded(features.best))];
    bench.record("pooled", &case, &pooled, bytes, &more)
}

/// Sums of products of features in device memory, in blocks of rows.
fn gram(bench: &mut Bench) -> Result<(), Error> {
    let (rows, block) = (1 << 20, 1 << 16);
    let Some(algebra) = Algebra::find(&bench.device)? else {
        println!("gram: cuBLAS was not found");
        return Ok(());
    };
    let sums = Case { method: "gram", element: Element::F64, ..case("ctr-product-srht", rows, 1024, 3, 4096, F32) };
    let sketch = Case { method: "ctr-product-srht", ..sums }.sketch(&bench.device)?;
    let products = Products::new(algebra, Arc::new(sketch), 1, 1)?;
    let features = view(&bench.out, F32, block, sums.features)?;
    let (ones, groups) = (vec![1.0; block], vec![0; block]);
    let stream = &bench.stream;
    let times =
        time(stream, || (0..rows / block).try_for_each(|_| products.add_on(stream, &features, &ones, &groups)))?;
    bench.record("gram", &sums, &times, rows * sums.features * 4, &[])
}

/// Growth over each size, with the others fixed.
fn growth(bench: &mut Bench) -> Result<(), Error> {
    for method in GROWING {
        let base = Case { method, ..BASE };
        let mut cases = vec![base];
        cases.extend(ROWS.map(|rows| Case { rows, ..base }));
        cases.extend(DIMS.map(|dim| Case { dim, ..base }));
        cases.extend(DEGREES.map(|degree| Case { degree, ..base }));
        cases.extend(FEATURES.map(|features| Case { features, ..base }));
        for (at, case) in cases.iter().enumerate() {
            if at == 0 || *case != base {
                bench.forward("growth", case)?;
            }
        }
    }
    Ok(())
}

/// What a process does that computes features once; prints the time to open the device, and the time until they are there.
fn first_call() -> Result<(), Error> {
    let begun = Instant::now();
    let device = Device::open(0)?;
    let opened = milliseconds(begun);
    let case = case("ctr-product-srht", 1000, 1024, 3, 2048, F32);
    let sketch = case.sketch(&device)?;
    let stream = device.stream()?;
    let (x, out) = (device.upload(&vec![0.5_f32; 1000 * 1024])?, device.allocate(1000 * 2048 * 4)?);
    sketch.transform_on(&stream, &[view(&x, F32, 1000, 1024)?], &view(&out, F32, 1000, 2048)?)?;
    sketch.finish(&stream)?;
    println!("{} {}", rounded(opened), rounded(milliseconds(begun)));
    Ok(())
}

/// First calls of new processes: whether the driver had compiled the kernels before, and what [`first_call`] printed.
fn first_calls() -> Result<Vec<(bool, String)>, Error> {
    let call = |cached: bool| -> Result<Option<(bool, String)>, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.arg("--first-call").env("CUDA_CACHE_DISABLE", if cached { "0" } else { "1" }).output()?;
        Ok(output.status.success().then(|| (cached, String::from_utf8_lossy(&output.stdout).trim().to_owned())))
    };
    // The first with a cache fills it.
    call(true)?;
    Ok([call(false)?, call(true)?].into_iter().flatten().collect())
}

fn run() -> Result<(), Error> {
    let (mut json, mut sections, mut sketches) = (None, Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--first-call" => return first_call(),
            "--json" => json = Some(arguments.next().ok_or("--json needs a file")?),
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
            "first-call" => sections.push(argument),
            name if SECTIONS.iter().any(|(section, _)| *section == name) => sections.push(argument),
            _ => sketches.push(argument),
        }
    }
    // Before this process opens the device, which would make it faster for others.
    let wanted = |name: &str| sections.is_empty() || sections.iter().any(|section| section == name);
    let first = if wanted("first-call") && sketches.is_empty() { first_calls()? } else { vec![] };
    let mut bench = Bench::new(sketches)?;
    bench.json = json.map(File::create).transpose()?;

    let info = bench.device.info().clone();
    let cuda = format!("{}.{}", info.driver / 1000, info.driver % 1000 / 10);
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    println!("{}, CUDA {cuda}", info.name);
    bench.write(&[
        ("kind", quoted("machine")),
        ("name", quoted(&info.name)),
        ("cuda", quoted(cuda)),
        ("driver", quoted(driver_version())),
        ("unix_time", seconds.to_string()),
    ])?;
    for (cached, line) in first {
        let (open, total) = line.split_once(' ').ok_or("a first call prints two times")?;
        println!("first call: {total} ms, {open} of them to open the device; kernels compiled before: {cached}");
        bench.write(&[
            ("kind", quoted("first-call")),
            ("cached", cached.to_string()),
            ("open_ms", open.to_owned()),
            ("best_ms", total.to_owned()),
        ])?;
    }
    let copy = bench.copy(1 << 33)?;
    println!("copy: {:.3} TB/s", (1_u64 << 33) as f64 / copy / 1e9);
    bench.write(&[("kind", quoted("copy")), ("bytes", (1_u64 << 33).to_string()), ("best_ms", rounded(copy))])?;
    for (name, section) in SECTIONS {
        if wanted(name) {
            section(&mut bench)?;
        }
    }
    Ok(())
}

/// The version of NVIDIA's driver, or nothing where it is not told.
fn driver_version() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|letter| letter == '.' || letter.is_ascii_digit());
    text.split_whitespace().find(is_version).unwrap_or_default().to_owned()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}
