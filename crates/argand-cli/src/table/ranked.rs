//! Files of scored examples: a row for every query, list and rank.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argand_learn::attribution::{Ranked, Scores};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;

use super::{Written, csv};
use crate::failure::Failure;
use crate::output::AtomicFile;

const NAMES: [&str; 8] = ["query", "rank", "kind", "example", "score", "standard_error", "rank_low", "rank_high"];

/// A file of scores that was started.
pub(crate) struct RankedWriter {
    path: PathBuf,
    file: AtomicFile,
    format: Written,
}

/// A row: the query, the kind of the list, the rank, and what has it.
type Row<'a> = (u64, &'static str, usize, &'a Ranked);

/// All rows, query by query, helpful examples first.
fn rows(scores: &Scores) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (at, &query) in scores.queries.iter().enumerate() {
        for (kind, list) in [("helpful", &scores.helpful), ("harmful", &scores.harmful)] {
            let list = &list[at * scores.top..][..scores.top];
            rows.extend((1..).zip(list).map(|(rank, ranked)| (query, kind, rank, ranked)));
        }
    }
    rows
}

impl RankedWriter {
    /// Starts a file, before any work.
    ///
    /// # Errors
    /// [`Failure::Input`] for formats that hold no text, and as [`AtomicFile::create`].
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let format = Written::of(path)?;
        if format == Written::Npy {
            return Err(Failure::input(path, "NPY holds no tables with text; write .parquet or .csv"));
        }
        Ok(Self { path: path.to_path_buf(), file: AtomicFile::create(path)?, format })
    }

    /// Writes all scores; the file appears.
    pub(crate) fn write(mut self, scores: &Scores) -> Result<(), Failure> {
        let rows = rows(scores);
        if self.format == Written::Parquet {
            return self.write_parquet(&rows)?.commit();
        }
        let delimiter = csv::delimiter_of(&self.path);
        let failed = |error| Failure::io(&self.path, "write", &error);
        self.file.write_all(&csv::line(delimiter, NAMES)).map_err(failed)?;
        for (query, kind, rank, ranked) in rows {
            let Ranked { example, score, standard_error, rank_low, rank_high } = ranked;
            let [query, example] = [query, *example].map(|number| number.to_string());
            let [rank, low, high] = [rank, *rank_low, *rank_high].map(|rank| rank.to_string());
            let [score, error] = [score, standard_error].map(f64::to_string);
            let fields = [&query, &rank, kind, &example, &score, &error, &low, &high];
            self.file.write_all(&csv::line(delimiter, fields)).map_err(failed)?;
        }
        self.file.commit()
    }

    fn write_parquet(self, rows: &[Row<'_>]) -> Result<AtomicFile, Failure> {
        let whole = |number: fn(&Row<'_>) -> u64| -> ArrayRef {
            // Numbers of examples that were counted fit.
            Arc::new(rows.iter().map(|row| i64::try_from(number(row)).unwrap_or(i64::MAX)).collect::<Int64Array>())
        };
        let real =
            |number: fn(&Row<'_>) -> f64| -> ArrayRef { Arc::new(rows.iter().map(number).collect::<Float64Array>()) };
        let kinds: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
        let columns = [
            whole(|row| row.0),
            whole(|row| row.2 as u64),
            kinds,
            whole(|row| row.3.example),
            real(|row| row.3.score),
            real(|row| row.3.standard_error),
            whole(|row| row.3.rank_low as u64),
            whole(|row| row.3.rank_high as u64),
        ];
        let write = || {
            let batch = RecordBatch::try_from_iter(NAMES.into_iter().zip(columns))?;
            let mut writer = ArrowWriter::try_new(self.file, batch.schema(), None)?;
            writer.write(&batch)?;
            writer.into_inner()
        };
        write().map_err(|error| super::parquet::cannot_write(&self.path, &error))
    }
}
