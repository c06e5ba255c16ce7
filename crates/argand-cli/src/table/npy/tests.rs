use super::super::tests::{Scratch, read_all};
use super::*;

/// An NPY file as NumPy writes it, without padding.
fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([version, 0]);
    let length = u32::try_from(header.len()).unwrap().to_le_bytes();
    bytes.extend(&length[..if version == 1 { 2 } else { 4 }]);
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

fn header(dtype: &str, shape: &str) -> String {
    format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n")
}

#[test]
fn every_type_in_both_byte_orders() {
    macro_rules! check {
        ($($dtype:literal: $type:ident $values:expr;)*) => {$(
            let values: [$type; 4] = $values;
            let expected: Vec<f64> = values.iter().map(|value| value.to_element()).collect();
            let rounded: Vec<f32> = values.iter().map(|value| value.to_element()).collect();
            for (order, data) in [
                ("<", values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()),
                (">", values.iter().flat_map(|v| v.to_be_bytes()).collect()),
                ("|", values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            ] {
                if order == "|" && size_of::<$type>() > 1 { continue; }
                let scratch = Scratch::new("x.npy", npy(1, &header(&format!("{order}{}", $dtype), "(2, 2)"), &data));
                assert_eq!(read_all::<f64>(&scratch.path, 3).unwrap(), (2, expected.clone()), "{order}{}", $dtype);
                assert_eq!(read_all::<f32>(&scratch.path, 1).unwrap(), (2, rounded.clone()), "{order}{}", $dtype);
            }
        )*};
    }
    check! {
        "f2": f16 [1.0, -2.5, 65504.0, 6e-5].map(f16::from_f64);
        "f4": f32 [1.0, -2.5, f32::MAX, 1e-40];
        "f8": f64 [1.0, -2.5, 0.1, f64::INFINITY];
        "i1": i8 [0, -1, i8::MIN, i8::MAX];
        "i2": i16 [0, -1, i16::MIN, i16::MAX];
        "i4": i32 [0, -1, i32::MIN, i32::MAX];
        "i8": i64 [0, -1, i64::MIN, (1 << 53) - 1];
        "u1": u8 [0, 1, 128, u8::MAX];
        "u2": u16 [0, 1, 1 << 15, u16::MAX];
        "u4": u32 [0, 1, 1 << 31, u32::MAX];
        "u8": u64 [0, 1, 1 << 63, (1 << 53) - 1];
    }
    let scratch = Scratch::new("x.npy", npy(1, &header("|b1", "(2, 2)"), &[0, 1, 1, 0]));
    assert_eq!(read_all::<f32>(&scratch.path, 9).unwrap(), (2, vec![0.0, 1.0, 1.0, 0.0]));
}

/// NumPy saves the transpose of an array, and tables of pandas, column after column.
#[test]
fn fortran_order_is_read_in_any_blocks() {
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 3), }\n";
    let by_column: Vec<u8> =
        (0..3).flat_map(|c| (0..5).map(move |r| 10 * r + c)).flat_map(|v| (v as f32).to_le_bytes()).collect();
    let scratch = Scratch::new("x.npy", npy(1, header, &by_column));
    let expected: Vec<f64> = (0..5).flat_map(|r| (0..3).map(move |c| f64::from(10 * r + c))).collect();
    for rows in [1, 2, 5, 100] {
        assert_eq!(read_all::<f64>(&scratch.path, rows).unwrap(), (3, expected.clone()));
    }
    for picked in [&[2, 0][..], &[1], &[0, 1, 2]] {
        let mut reader = NpyReader::<f64>::open(&scratch.path, Some(picked)).unwrap();
        let mut block = Block::default();
        assert_eq!((reader.columns(), reader.read(2, &mut block)), (picked.len(), Ok(2)));
        let values = [0.0, 10.0].iter().flat_map(|row| picked.iter().map(move |&c| row + c as f64)).collect();
        assert_eq!(block, Block::Dense { values });
    }
    assert!(NpyReader::<f64>::open(&scratch.path, Some(&[])).is_err());
}

/// A reader that fails as a bad disk does.
struct BadDisk;

impl Read for BadDisk {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::from_raw_os_error(5))
    }
}

#[test]
fn errors_of_the_system_are_not_called_another_format() {
    assert!(matches!(read_header(&mut BadDisk), Err(HeaderFault::System(_))));
    assert!(matches!(read_header(&mut &b"short"[..]), Err(HeaderFault::Contents(what)) if what.contains("not an NPY")));
}

#[test]
fn reference_bytes_of_numpy() {
    // numpy.save of numpy.array([[1, 2, 3]], dtype='<f4'), byte for byte.
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }").bytes());
    bytes.extend(b"\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40");
    let scratch = Scratch::new("x.npy", bytes.clone());
    assert_eq!(read_all::<f32>(&scratch.path, 9).unwrap(), (3, vec![1.0, 2.0, 3.0]));
    // The writer produces the same bytes.
    let mut writer = Box::new(NpyWriter::create(&scratch.path, Columns::Real(3)).unwrap());
    writer.write(&[1.0_f32, 2.0, 3.0]).unwrap();
    writer.finish().unwrap().commit().unwrap();
    assert_eq!(std::fs::read(&scratch.path).unwrap(), bytes);
}

#[test]
fn complex_numbers_are_written_as_such() {
    let scratch = Scratch::new("x.npy", Vec::new());
    let mut writer = Box::new(NpyWriter::create(&scratch.path, Columns::Complex(2)).unwrap());
    writer.write(&[1.0_f64; 12]).unwrap();
    writer.finish().unwrap().commit().unwrap();
    let bytes = std::fs::read(&scratch.path).unwrap();
    assert!(bytes[10..].starts_with(b"{'descr': '<c16', 'fortran_order': False, 'shape': (3, 2), }  "));
    assert_eq!(bytes.len(), HEADER + 12 * 8);
}

#[test]
fn headers_of_all_versions_and_spellings() {
    let data = [0, 0, 128, 63];
    for (version, header) in [
        (1, "{'shape':(1L,1L),'fortran_order':False,'descr':'<f4'}".into()),
        (2, "{\"descr\": \"<f4\", 'fortran_order': True, 'shape': (1, 1)}   \n".into()),
        (3, header("<f4", "( 1 , 1 , )")),
    ] {
        let scratch = Scratch::new("x.npy", npy(version, &header, &data));
        assert_eq!(read_all::<f64>(&scratch.path, 1).unwrap(), (1, vec![1.0]), "{header}");
    }
}

#[test]
fn what_is_not_a_table_is_refused_with_advice() {
    let eight = [0; 8];
    let structured = "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,), }";
    let huge = header("<f8", "(18446744073709551615, 18446744073709551615)");
    for (bytes, message) in [
        (b"PK\x03\x04 something".to_vec(), "is not an NPY file"),
        (MAGIC.to_vec(), "is not an NPY file"),
        (npy(9, &header("<f4", "(1, 2)"), &eight), "NPY version 9 is not known"),
        (npy(1, &header("<f4", "(1, 2)"), &eight)[..30].to_vec(), "header is truncated"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "claims 4294967295 bytes"),
        (npy(1, &header("<f4", "(2,)"), &eight), "has 1 dimensions, but a table has 2; save x.reshape(rows, columns)"),
        (npy(1, &header("<f4", "(1, 2, 1)"), &eight), "has 3 dimensions"),
        (npy(1, &header("<c8", "(1, 1)"), &eight), "dtype <c8 is not supported"),
        (npy(1, &header("|O", "(1, 1)"), &eight), "dtype |O is not supported"),
        (npy(1, structured, &eight), "dtype [('a', '<f4'), ('b', '<f4')] is not supported"),
        (npy(1, &header("<f4", "(1, 2)"), &eight[..7]), "takes 8 bytes, but 7 follow the header"),
        (npy(1, &header("<f4", "(1, 1)"), &eight), "takes 4 bytes, but 8 follow the header"),
        (npy(1, &huge, &eight), "more than 2^64 bytes"),
        (npy(1, &header("<f4", "(0, 2)"), &[]), "at least one row and one column"),
        (npy(1, &header("<f4", "(2, 0)"), &[]), "at least one row and one column"),
        (
            npy(1, &header("<f4", "(99999999999999999999, 2)"), &eight),
            "header \"{'descr': '<f4', 'fortran_order': False,…\" is malformed",
        ),
        (npy(1, "{'descr': '<f4', 'shape': (1, 2)}", &eight), "is malformed"),
        (npy(1, &"(".repeat(60_000), &eight), "is malformed"),
    ] {
        let scratch = Scratch::new("x.npy", bytes);
        let failure = NpyReader::<f32>::open(&scratch.path, None).err().unwrap();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().contains(message), "{failure} does not say {message}");
        assert!(failure.to_string().starts_with(&*scratch.path.to_string_lossy()));
    }
}
