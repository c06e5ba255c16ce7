//! Times of sketches on a GPU beside a copy of the same bytes: `make bench-gpu`.

use std::time::Instant;

use argand::{Error, Spec};
use argand_cuda::{Buffer, CudaSketch, Device, DeviceRows, Element, Stream};

/// Best and median milliseconds of a queued call.
fn time(stream: &Stream, mut call: impl FnMut() -> Result<(), Error>) -> Result<(f64, f64), Error> {
    for _ in 0..3 {
        call()?;
    }
    stream.synchronize()?;
    let begun = Instant::now();
    call()?;
    stream.synchronize()?;
    let once = begun.elapsed().as_secs_f64();
    let repeats = if once < 1e-4 {
        100
    } else if once < 1e-2 {
        5
    } else {
        1
    };
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..15 {
        let begun = Instant::now();
        for _ in 0..repeats {
            call()?;
        }
        stream.synchronize()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3 / repeats as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[times.len() / 2]))
}

#[allow(unsafe_code, reason = "views of own buffers")]
fn view(buffer: &Buffer, element: Element, rows: usize, columns: usize) -> Result<DeviceRows, Error> {
    assert!(buffer.bytes() >= rows * columns * element.bytes());
    // SAFETY: the buffer is long enough and outlives the work.
    unsafe { DeviceRows::from_address(buffer.address(), element, rows, columns, columns) }
}

/// 784 positions of 256 images with 512 channels, pooled inside the kernel and by features, then sums.
fn pooled(device: &Device, stream: &Stream) -> Result<(), Error> {
    let (images, positions, channels, features) = (256, 784, 512, 8192);
    let rows = images * positions;
    let drawn = Spec::polynomial(channels).with_degree(2).with_features(features).draw()?;
    let sketch = CudaSketch::<f32>::new(device, &drawn)?;
    let values: Vec<f32> =
        (0..rows * channels).map(|at| ((at.wrapping_mul(2_654_435_761) >> 7) % 2001) as f32 / 1000.0 - 1.0).collect();
    let (x, out) = (device.upload(&values)?, device.allocate(images * features * 4)?);
    let groups = argand::Groups::even(rows, positions)?;
    let (input, sums) = (view(&x, Element::F32, rows, channels)?, view(&out, Element::F32, images, features)?);
    let (best, _) = time(stream, || sketch.transform_pooled_on(stream, &[input], &groups, &sums))?;
    sketch.finish(stream)?;
    let all = device.allocate(rows * features * 4)?;
    let all = view(&all, Element::F32, rows, features)?;
    let (apart, _) = time(stream, || sketch.transform_on(stream, &[input], &all))?;
    sketch.finish(stream)?;
    println!(
        "pooled {images} x {positions} x {channels}, p = 2, D = {features}: {best:.3} ms; features alone {apart:.3} ms"
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let filter: Vec<String> = std::env::args().skip(1).collect();
    let begun = Instant::now();
    let device = Device::open(0)?;
    println!("{:?}, opened in {:.0} ms", device.info(), begun.elapsed().as_secs_f64() * 1e3);
    let stream = device.stream()?;
    let table = |rows: usize, columns: usize, element: Element| -> Result<Buffer, Error> {
        let random = |at: usize| ((at.wrapping_mul(2_654_435_761) >> 7) % 2001) as f32 / 1000.0 - 1.0;
        match element {
            Element::F32 => {
                let values: Vec<f32> = (0..rows * columns).map(random).collect();
                device.upload(&values)
            }
            _ => {
                let values: Vec<u16> = (0..rows * columns).map(|at| (random(at).to_bits() >> 16) as u16).collect();
                device.upload(&values)
            }
        }
    };
    let bytes = 1_usize << 32;
    let (from, to) = (device.allocate(bytes)?, device.allocate(bytes)?);
    let (best, _) = time(&stream, || stream.copy(&from, &to, bytes))?;
    let rate = 2.0 * bytes as f64 / best / 1e9;
    println!("copy: {rate:.3} TB/s");
    drop((from, to));
    if filter.is_empty() || filter.iter().any(|part| part == "pooled") {
        pooled(&device, &stream)?;
    }
    println!("| method | rows x d | p | D | type | best ms | median ms | floor ms | ratio | set-up ms |");
    let list: [(&str, usize, usize, usize, usize, Element); 20] = [
        ("ctr-product-srht", 65_536, 1024, 3, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 1024, 7, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 1024, 3, 8192, Element::Bf16),
        ("ctr-product-srht", 65_536, 1024, 7, 8192, Element::Bf16),
        ("ctr-product-srht", 1000, 1024, 3, 2048, Element::F32),
        ("product-srht", 65_536, 1024, 3, 8192, Element::F32),
        ("ctr-tensor-srht", 65_536, 1024, 3, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 784, 3, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 512, 3, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 256, 3, 8192, Element::F32),
        ("ctr-product-srht", 65_536, 64, 3, 4096, Element::F32),
        ("ctr-product-srht", 65_536, 2048, 3, 8192, Element::F32),
        ("tensor-sketch", 65_536, 1024, 3, 8192, Element::F32),
        ("gaussian", 65_536, 1024, 3, 8192, Element::F32),
        ("ctr-gaussian", 65_536, 1024, 3, 8192, Element::F32),
        ("rademacher", 65_536, 1024, 3, 8192, Element::F32),
        ("ctr-rademacher", 65_536, 1024, 3, 8192, Element::F32),
        ("hierarchical-ctr-product-srht", 65_536, 1024, 4, 8192, Element::F32),
        ("craft-ctr-product-srht", 65_536, 1024, 3, 4096, Element::F32),
        ("srf", 65_536, 1024, 3, 8192, Element::F32),
    ];
    for (method, rows, dim, degree, features, element) in list {
        let name = format!("{method} {dim} {degree} {features}");
        if !filter.is_empty() && !filter.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let parsed = method.parse().map_err(|_| Error::invalid(argand::Argument::Method, "a method", method))?;
        let mut spec = Spec::polynomial(dim).with_degree(degree).with_features(features).with_method(parsed);
        if method == "srf" {
            (spec.kernel.gamma, spec.kernel.coef0) = (0.5, 0.5);
        }
        let drawn = spec.draw()?;
        let begun = Instant::now();
        let sketch = CudaSketch::<f32>::new(&device, &drawn)?;
        let setup = begun.elapsed().as_secs_f64() * 1e3;
        let x = table(rows, dim, element)?;
        let out = device.allocate(rows * features * element.bytes())?;
        let (x, out) = (view(&x, element, rows, dim)?, view(&out, element, rows, features)?);
        let (best, median) = time(&stream, || sketch.transform_on(&stream, &[x], &out))?;
        sketch.finish(&stream)?;
        let floor = (rows * (dim + features) * element.bytes()) as f64 / rate / 1e9;
        println!(
            "| {method} | {rows} x {dim} | {degree} | {features} | {element:?} | {best:.4} | {median:.4} | {floor:.4} | {:.2} | {setup:.0} |",
            best / floor
        );
    }
    Ok(())
}
