#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::*;
use crate::table::tests::{Numbers, Scratch, read_all, read_damaged};
use crate::table::{Columns, Writer};

/// A file as other programs write it: compressed, with dictionaries and nullable columns.
fn parquet(columns: &[(&str, ArrayRef)], compression: Compression) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(n, a)| (n, Arc::clone(a), true)));
    let batch = batch.unwrap();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(batch.num_rows().div_ceil(2).max(1)))
        .set_write_batch_size(8)
        .set_data_page_row_count_limit(16)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn vectors(rows: &[Option<[Option<f32>; 2]>]) -> FixedSizeListArray {
    let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for row in rows {
        row.unwrap_or_default().iter().for_each(|&value| builder.values().append_option(value));
        builder.append(row.is_some());
    }
    builder.finish()
}

#[test]
fn every_type_becomes_numbers() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("f2", Arc::new(Float16Array::from(vec![f16::from_f32(0.5), f16::from_f32(-2.0)]))),
        ("f4", Arc::new(Float32Array::from(vec![0.1, f32::NAN]))),
        ("f8", Arc::new(Float64Array::from(vec![0.1, f64::INFINITY]))),
        ("i1", Arc::new(Int8Array::from(vec![i8::MIN, 1]))),
        ("i2", Arc::new(Int16Array::from(vec![i16::MIN, 2]))),
        ("i4", Arc::new(Int32Array::from(vec![i32::MIN, 3]))),
        ("i8", Arc::new(Int64Array::from(vec![i64::MIN, 4]))),
        ("u1", Arc::new(UInt8Array::from(vec![u8::MAX, 5]))),
        ("u2", Arc::new(UInt16Array::from(vec![u16::MAX, 6]))),
        ("u4", Arc::new(UInt32Array::from(vec![u32::MAX, 7]))),
        ("u8", Arc::new(UInt64Array::from(vec![1 << 63, 8]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false]))),
        ("v", Arc::new(vectors(&[Some([Some(1.0), Some(2.0)]), Some([Some(3.0), Some(4.0)])]))),
        ("last", Arc::new(Float64Array::from(vec![8.0, 9.0]))),
    ];
    let scratch = Scratch::new("x.parquet", parquet(&columns, Compression::SNAPPY));
    let (width, mut values) = read_all::<f64>(&scratch.path, 9).unwrap();
    assert!(values[width + 1].is_nan());
    values[width + 1] = 0.0;
    assert_eq!(width, 15);
    #[rustfmt::skip]
    let expected = [
        0.5, f64::from(0.1_f32), 0.1, -128.0, -32768.0, -2_147_483_648.0, -9_223_372_036_854_775_808.0, 255.0,
        65535.0, 4_294_967_295.0, 9_223_372_036_854_775_808.0, 1.0, 1.0, 2.0, 8.0,
        -2.0, 0.0, f64::INFINITY, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 3.0, 4.0, 9.0,
    ];
    assert_eq!(values, expected);
    let rounded: Vec<f32> = read_all(&scratch.path, 1).unwrap().1;
    assert_eq!((rounded[1], rounded[2]), (0.1, 0.1));
}

#[test]
fn batches_groups_and_tiles_fit_together() {
    let rows = 1000_u16;
    let column = |offset| Arc::new(Float64Array::from_iter_values((0..rows).map(|row| f64::from(row) + offset)));
    let list = vectors(&(0..rows).map(|row| Some([Some(f32::from(row)), Some(-1.0)])).collect::<Vec<_>>());
    let columns: [(&str, ArrayRef); 3] = [("a", column(0.25)), ("v", Arc::new(list)), ("b", column(0.75))];
    let scratch = Scratch::new("x.parquet", parquet(&columns, Compression::UNCOMPRESSED));
    let row = |row| [f64::from(row) + 0.25, f64::from(row), -1.0, f64::from(row) + 0.75];
    let expected: Vec<f64> = (0..rows).flat_map(row).collect();
    for max_rows in [1, 63, 64, 65, 500, 700, 10_000] {
        assert_eq!(read_all::<f64>(&scratch.path, max_rows).unwrap(), (4, expected.clone()));
    }
}

/// The compressions that other programs use.
#[test]
fn usual_compressions_are_read() {
    let columns: [(&str, ArrayRef); 1] = [("x", Arc::new(Float64Array::from_iter_values((0..99).map(f64::from))))];
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        let scratch = Scratch::new("x.parquet", parquet(&columns, compression));
        let (width, values) = read_all::<f64>(&scratch.path, 9).unwrap();
        assert_eq!((width, values.iter().sum::<f64>()), (1, 4851.0), "{compression}");
    }
}

#[test]
fn other_compressions_are_refused_with_their_column() {
    let columns: [(&str, ArrayRef); 1] = [("weight", Arc::new(Float64Array::from(vec![1.0, 2.0])))];
    let scratch = Scratch::new("x.parquet", parquet(&columns, Compression::SNAPPY));
    let (builder, _, _) = open_checked(&scratch.path, &Options::default(), ArrowReaderOptions::new()).unwrap();
    let mut groups = builder.metadata().row_groups().to_vec();
    let column = groups[0].column(0).clone().into_builder();
    let column = column.set_compression(Compression::BROTLI(BrotliLevel::default())).build().unwrap();
    groups[0] = groups[0].clone().into_builder().set_column_metadata(vec![column]).build().unwrap();
    let metadata = ParquetMetaData::new(builder.metadata().file_metadata().clone(), groups);
    let what = check_compression(&metadata).unwrap_err();
    assert!(what.starts_with("column \"weight\" is compressed with BROTLI") && what.contains("zstd"), "{what}");
}

#[test]
fn mistakes_are_named_with_their_column() {
    let numbers: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]));
    let (none, some) = (None, Some([Some(1.0); 2]));
    let refuse = |column: ArrayRef, message: &str| {
        let bytes = parquet(&[("x", Arc::clone(&numbers)), ("bad one", column)], Compression::UNCOMPRESSED);
        let scratch = Scratch::new("x.parquet", bytes);
        let failure = read_all::<f32>(&scratch.path, 2).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().contains(message), "{failure} does not say {message}");
    };
    let null = "row 2 (counted from 0), column \"bad one\" is null";
    refuse(Arc::new(Int64Array::from(vec![Some(1), Some(2), None])), null);
    refuse(Arc::new(vectors(&[some, some, none])), null);
    refuse(Arc::new(vectors(&[some, some, Some([Some(1.0), None])])), null);
    refuse(Arc::new(StringArray::from(vec!["a", "b", "c"])), "column \"bad one\" has type Utf8");
    let empty = parquet(&[("x", Arc::new(Float32Array::from(Vec::<f32>::new())))], Compression::UNCOMPRESSED);
    for (bytes, message) in [
        (empty, "has 0 rows and 1 columns"),
        (b"PAR1".to_vec(), "is too short"),
        (b"PAR1, and then something else".to_vec(), "does not end as a Parquet file does"),
        (b"PAR1\xff\xff\xff\x7fPAR1".to_vec(), "claims a footer longer than the file"),
    ] {
        let scratch = Scratch::new("x.parquet", bytes);
        let failure = read_all::<f32>(&scratch.path, 2).unwrap_err();
        assert!(failure.to_string().contains(message), "{failure} does not say {message}");
    }
}

#[test]
fn damaged_files_never_panic() {
    let mut numbers = Numbers::new(3);
    let mut few = |values: u64| (0..60).map(|_| numbers.next() % values).collect::<Vec<_>>();
    let columns: [(&str, ArrayRef); 4] = [
        ("dictionary", Arc::new(UInt64Array::from(few(5)))),
        ("flag", Arc::new(few(2).into_iter().map(|n| Some(n == 0)).collect::<BooleanArray>())),
        ("vector", Arc::new(vectors(&few(9).iter().map(|_| Some([Some(1.5), Some(2.5)])).collect::<Vec<_>>()))),
        ("half", Arc::new(Float16Array::from_iter_values(few(99).iter().map(|&n| f16::from_f64(n as f64))))),
    ];
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW] {
        read_damaged("x.parquet", &parquet(&columns, compression), 400);
    }
}

#[test]
fn groups_are_bounded_and_names_tell_the_parts() {
    let scratch = Scratch::new("x.parquet", "");
    let mut writer = Box::new(ParquetWriter::create(&scratch.path, Columns::Complex(3000)).unwrap());
    let rows = vec![0.5_f32; 1000 * 6000];
    for _ in 0..3 {
        writer.write(&rows).unwrap();
    }
    writer.finish().unwrap().commit().unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&scratch.path).unwrap()).unwrap();
    let names: Vec<_> = builder.schema().fields().iter().take(3).map(|field| field.name().clone()).collect();
    assert_eq!(names, ["z0_re", "z0_im", "z1_re"]);
    let groups: Vec<_> = builder.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!((groups.iter().sum::<i64>(), groups.len()), (3000, 2));
}

/// Our own files have checksums: every flipped bit of a number is an error, in pages of any size.
#[test]
fn flipped_bits_of_our_own_pages_are_noticed() {
    let values: Vec<f64> = (0..600).map(|i| f64::from(i) / 7.0).collect();
    let scratch = Scratch::new("x.parquet", "");
    let mut writer = Box::new(super::writer::ParquetWriter::<f64>::create(&scratch.path, Columns::Real(3)).unwrap());
    writer.write(&values).unwrap();
    writer.finish().unwrap().commit().unwrap();
    let whole = std::fs::read(&scratch.path).unwrap();
    assert_eq!(read_all::<f64>(&scratch.path, 100).unwrap(), (3, values.clone()));
    let first = values[3].to_le_bytes();
    let start = whole.windows(8).position(|bytes| bytes == first).unwrap();
    for at in (start..start + 199 * 8).step_by(5) {
        for bit in [0, 5] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            std::fs::write(&scratch.path, bytes).unwrap();
            assert!(read_all::<f64>(&scratch.path, 100).is_err(), "byte {at}, bit {bit}");
        }
    }
    // A column of several pages.
    let long: Vec<f64> = (0..300_000).map(f64::from).collect();
    let mut writer = Box::new(super::writer::ParquetWriter::<f64>::create(&scratch.path, Columns::Real(1)).unwrap());
    writer.write(&long).unwrap();
    writer.finish().unwrap().commit().unwrap();
    assert_eq!(read_all::<f64>(&scratch.path, 70_000).unwrap(), (1, long));
    let mut bytes = std::fs::read(&scratch.path).unwrap();
    bytes[2_000_000] ^= 1;
    std::fs::write(&scratch.path, bytes).unwrap();
    assert!(read_all::<f64>(&scratch.path, 1000).is_err());
}

/// A file that pyarrow wrote with checksums: no changed bit of its numbers is read as another number.
#[test]
fn flipped_bits_of_pages_with_checksums_are_noticed() {
    let whole = include_bytes!("../../../tests/fixture/checksums.parquet");
    let scratch = Scratch::new("x.parquet", whole);
    let expected = read_all::<f64>(&scratch.path, 100).unwrap();
    assert_eq!((expected.0, &expected.1[..4]), (2, &[0.0, 0.0, 0.5, 7.0][..]));
    let footer = usize::try_from(u32::from_le_bytes(*whole[..whole.len() - 4].last_chunk().unwrap())).unwrap();
    let (mut refused, mut tried) = (0, 0);
    for at in 4..whole.len() - 8 - footer {
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << bit;
            std::fs::write(&scratch.path, bytes).unwrap();
            tried += 1;
            match read_all::<f64>(&scratch.path, 100) {
                Err(_) => refused += 1,
                Ok(read) => assert_eq!(read, expected, "byte {at}, bit {bit}"),
            }
        }
    }
    // 960 bytes are numbers; some bits of the headers mean nothing here.
    assert!(refused >= 8 * 960, "{refused} of {tried}");
}
