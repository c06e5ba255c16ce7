//! Some of the images in a file of bytes: NPY of shape n x h x w or n x h x w x 3, or IDX of n x h x w, also gzipped.

use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::{Format, idx, npy, open_file};
use crate::failure::Failure;

/// The number of images, and the bytes of one.
struct Shape {
    count: u64,
    height: u32,
    width: u32,
    bytes: usize,
}

/// Reads the images with some numbers, which rise: width, height and pixels of each, to `found`.
///
/// # Errors
/// [`Failure::Input`] if the file holds no images, or too few.
pub(crate) fn read_images(
    path: &Path,
    numbers: &[u64],
    mut found: impl FnMut(u64, u32, u32, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut contents, shape) = if let Some(Format::Npy) = Format::named(path) {
        let (file, _, header) = npy::open_header(path)?;
        if header.dtype != "|u1" || header.fortran_order {
            let what = format!("expected images of bytes, got {}; save x.astype(numpy.uint8)", header.dtype);
            return Err(Failure::input(path, what));
        }
        let shape = shape_of(path, &header.shape)?;
        (Box::new(BufReader::new(file)) as Box<dyn Read>, shape)
    } else {
        open_idx(path)?
    };
    let cut = |error: &io::Error| idx::failure(path, error);
    let (mut image, mut place) = (vec![0; shape.bytes], 0);
    for &number in numbers {
        if number >= shape.count {
            let what = format!("has {} images, and example {number} is not among them", shape.count);
            return Err(Failure::input(path, what));
        }
        let skipped = (number - place).saturating_mul(shape.bytes as u64);
        if io::copy(&mut contents.by_ref().take(skipped), &mut io::sink()).map_err(|error| cut(&error))? < skipped {
            return Err(cut(&io::ErrorKind::UnexpectedEof.into()));
        }
        contents.read_exact(&mut image).map_err(|error| cut(&error))?;
        place = number + 1;
        found(number, shape.width, shape.height, &image)?;
    }
    Ok(())
}

/// Images of more bytes would make a page that no browser opens.
const LARGEST: u64 = 16 << 20;

fn shape_of(path: &Path, shape: &[u64]) -> Result<Shape, Failure> {
    let (count, height, width, depth) = match *shape {
        [count, height, width] => (count, height, width, 1),
        [count, height, width, 3] => (count, height, width, 3),
        _ => {
            let what = format!("expected images of shape n x h x w or n x h x w x 3, got the shape {shape:?}");
            return Err(Failure::input(path, what));
        }
    };
    let bytes = height.checked_mul(width).and_then(|area| area.checked_mul(depth));
    let bytes = bytes.filter(|bytes| (1..=LARGEST).contains(bytes)).and_then(|bytes| usize::try_from(bytes).ok());
    match (u32::try_from(height), u32::try_from(width), bytes) {
        (Ok(height), Ok(width), Some(bytes)) => Ok(Shape { count, height, width, bytes }),
        _ => Err(Failure::input(path, format!("images of {height} x {width} pixels cannot be shown"))),
    }
}

fn open_idx(path: &Path) -> Result<(Box<dyn Read>, Shape), Failure> {
    let (mut file, _) = open_file(path)?;
    let mut start = [0; 2];
    let compressed = file.read_exact(&mut start).is_ok() && start == idx::GZIP;
    file.rewind().map_err(|error| Failure::io(path, "read", &error))?;
    let buffered = BufReader::new(file);
    let mut contents: Box<dyn Read> =
        if compressed { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(buffered) };
    let mut magic = [0; 4];
    contents.read_exact(&mut magic).map_err(|error| idx::failure(path, &error))?;
    let [0, 0, 8, dimensions] = magic else {
        return Err(Failure::input(path, "is not an IDX file of bytes"));
    };
    let mut sizes = vec![0; 4 * usize::from(dimensions)];
    contents.read_exact(&mut sizes).map_err(|error| idx::failure(path, &error))?;
    let shape: Vec<u64> = sizes.as_chunks().0.iter().map(|&size| u64::from(u32::from_be_bytes(size))).collect();
    Ok((contents, shape_of(path, &shape)?))
}
