//! Draws the pictures in `docs/` from the numbers there: `make figures`. Its tests look at all of them.
//!
//! Numbers are in the tables of the documents and in CSV files beside the pictures, so a picture cannot say anything else than they do.

#[cfg(test)]
mod legible;
mod studies;

use std::fs;
use std::path::{Path, PathBuf};

use argand::theory::variance::{Formula, PairStatistics};
use argand::{Base, Field, Method, Polynomial, Spec};
use argand_figure::{COLOURS, Figure, Mark, Panel, Scale, Series, Stroke, Style, key};
use argand_paper::{ITEMS, Settings, Silent, Source};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    for (path, svg) in pictures()? {
        fs::write(docs().join(&path), svg)?;
        println!("docs/{}", path.display());
    }
    Ok(())
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// All pictures by their paths in `docs/`, but for `demo.svg`, which `argand demo` draws.
fn pictures() -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut drawn = paper()?;
    let benchmarks = fs::read_to_string(docs().join("benchmarks.md"))?;
    let [gpu, torch] = ["gpu.md", "torch.md"].map(|page| fs::read_to_string(docs().join(page)));
    let (gpu, torch) = (gpu?, torch?);
    let mut figures = vec![
        crossover()?,
        scaling(&Table::of(&benchmarks, "over")?)?,
        gradients(&Table::of(&torch, "numbers a layer")?)?,
        online(&Table::read(&docs().join("torch-online.csv"))?)?,
        pooling(&Table::read(&docs().join("torch-pooling.csv"))?)?,
    ];
    figures.push(studies::front()?);
    figures.extend(studies::attribution()?);
    figures.extend(studies::kernels()?);
    for method in ["ctr-product-srht", "tensor-sketch"] {
        figures.push(growth(method, &Table::of(&gpu, method)?)?);
    }
    drawn.extend(figures.into_iter().map(|figure| (PathBuf::from(format!("{}.svg", figure.name)), figure.svg())));
    Ok(drawn)
}

/// The pictures of the reproduced paper, from its CSV files alone.
fn paper() -> Result<Vec<(PathBuf, String)>, Failure> {
    let folder = tempfile::tempdir()?;
    for entry in fs::read_dir(docs().join("paper"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "csv") {
            fs::copy(&path, folder.path().join(path.file_name().unwrap_or_default()))?;
        }
    }
    // None of these rows are used: the files have their numbers.
    let datasets = vec![Source::digits()];
    let settings =
        Settings { out: folder.path().to_owned(), finished_only: true, threads: 1, datasets, ..Settings::default() };
    let (items, mut names) = (ITEMS.iter().collect::<Vec<_>>(), Vec::new());
    argand_paper::reproduce(&items, &settings, &Silent, |outcome| {
        names.extend(outcome.pictures.iter().map(|picture| format!("{}.svg", picture.file)));
    })?;
    let picture = |name: String| Ok((Path::new("paper").join(&name), fs::read_to_string(folder.path().join(name))?));
    names.into_iter().map(picture).collect()
}

/// Text in columns with names.
struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The table of a Markdown page whose first column has this name.
    fn of(page: &str, first: &str) -> Result<Self, Failure> {
        let cells = |line: &str| -> Vec<String> {
            line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let lines: Vec<&str> = page.lines().collect();
        let is_header = |pair: &[&str]| pair[0].starts_with(&format!("| {first} |")) && pair[1].contains("---");
        let start = lines.windows(2).position(is_header).ok_or_else(|| format!("no table of {first:?}"))?;
        let rows = lines[start + 2..].iter().take_while(|line| line.starts_with('|')).map(|line| cells(line)).collect();
        Ok(Self { header: cells(lines[start]), rows })
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let mut reader = csv::Reader::from_path(path)?;
        let cells = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let header = cells(reader.headers()?);
        let rows = reader.records().map(|record| Ok(cells(&record?))).collect::<Result<_, csv::Error>>()?;
        Ok(Self { header, rows })
    }

    /// The numbers of two columns in the rows for which `wanted` is true; cells without a number are left out.
    fn points(&self, x: usize, y: usize, wanted: impl Fn(&[String]) -> bool) -> Vec<(f64, f64)> {
        let number = |cell: &String| cell.replace(',', "").parse().ok();
        let rows = self.rows.iter().filter(|row| wanted(row));
        rows.filter_map(|row| Some((number(row.get(x)?)?, number(row.get(y)?)?))).collect()
    }
}

fn figure(name: &str, caption: &str, panels: Vec<Panel>, note: &str) -> Result<Figure, Failure> {
    let [name, caption, note] = [name, caption, note].map(str::to_owned);
    Ok(Figure { name, caption, columns: 2, panels, note })
}

/// Where Complex-to-Real sketches beat real ones, and where not: section 9 of docs/math.md.
fn crossover() -> Result<Figure, Failure> {
    let series = [2, 3, 5, 7].into_iter().enumerate().map(|(index, degree)| {
        // From θ = −45° to 45°, where a grows from −½ to ½.
        let angles = (0..=200).map(|step| (f64::from(step) / 100.0 - 1.0) * std::f64::consts::FRAC_PI_4);
        let points = angles.map(|angle| ratio(degree, angle)).collect::<Result<Vec<_>, _>>()?;
        Ok(Series::new(format!("p = {degree}"), Style::numbered(index), points))
    });
    let panel = Panel {
        // At a = −½ the real sketch has no variance at all.
        limits: [None, Some((0.2, 10.0))],
        rules: [Some(0.0), Some(1.0)],
        ..Panel::new(
            "Below 1: Complex-to-Real wins",
            ["a / (|x|² |y|²)", "variance, Complex-to-Real over real Rademacher"],
            [Scale::Linear, Scale::Logarithmic],
            series.collect::<Result<_, argand::Error>>()?,
        )
    };
    let note = "a is the sum of the products xᵢ yᵢ xⱼ yⱼ over all i ≠ j. It is negative where the products xᵢ yᵢ have \
                opposite signs, and never negative for rows without negative numbers.";
    figure("crossover", "", vec![panel], note)
}

/// a/N and the variance of a CtR-Rademacher sketch over that of a real one, for x = (1, 1)/√2 and y = (cos θ, sin θ).
fn ratio(degree: usize, angle: f64) -> Result<(f64, f64), argand::Error> {
    let kernel = Polynomial { degree, gamma: 1.0, coef0: 0.0 };
    let x = [0.5_f64.sqrt(); 2];
    let pair = PairStatistics::new(&kernel.into(), &x, &[angle.cos(), angle.sin()])?;
    let mut variances = [0.0; 2];
    for (variance, field) in variances.iter_mut().zip([Field::ComplexToReal, Field::Real]) {
        let spec = Spec::polynomial(2)
            .with_degree(degree)
            .with_features(1024)
            .with_method(Method::flat(Base::Rademacher, field));
        *variance = Formula::of(&spec)?.map_or(f64::NAN, |formula| formula.moments(&[pair]).variance);
    }
    Ok((pair.cross_terms() / pair.norms, variances[0] / variances[1]))
}

/// How time grows with each size: docs/benchmarks.md.
fn scaling(table: &Table) -> Result<Figure, Failure> {
    let sizes = [
        ("D", "features D", "Time over features", "1000 rows, d = 512, p = 3"),
        ("d", "columns d", "Time over columns", "1000 rows, p = 3, D = 4096"),
        ("p", "degree p", "Time over the degree", "1000 rows, d = 512, D = 4096"),
        ("n", "rows n", "Time over rows", "d = 512, p = 3, D = 4096"),
    ];
    let panels = sizes.map(|(name, x_label, title, fixed)| {
        let series = (2..table.header.len())
            .map(|column| Series::of_method(&table.header[column], table.points(1, column, |row| row[0] == name)));
        let y_label = format!("milliseconds; {fixed}");
        Panel::new(title, [x_label, &y_label], [Scale::Doubling, Scale::Logarithmic], series.collect())
    });
    figure("scaling", "", panels.to_vec(), &key(&panels[0].series))
}

/// How time grows on a GPU: docs/gpu.md.
fn growth(method: &str, table: &Table) -> Result<Figure, Failure> {
    let look = |name: &str| {
        let line = |index| Style { mark: Mark::Dot, ..Style::numbered(index) };
        match name {
            "Argand" => line(0),
            "PyTorch" => line(1),
            "torch.compile" => line(2),
            "authors" => Style { stroke: Stroke::None, mark: Mark::Triangle, ..line(3) },
            _ => Style { stroke: Stroke::Dashed, ..Style::numbered(COLOURS.len() - 1) },
        }
    };
    let sizes = [
        ("rows", "rows", Scale::Doubling, "d = 1024, p = 3, D = 8192"),
        ("d", "columns d", Scale::Doubling, "65,536 rows, p = 3, D = 8192"),
        ("p", "degree p", Scale::Linear, "65,536 rows, d = 1024, D = 8192"),
        ("D", "features D", Scale::Doubling, "65,536 rows, d = 1024, p = 3"),
    ];
    let panels = sizes.map(|(size, x_label, scale, fixed)| {
        // The first column says "1,024 rows" or "d = 64".
        let number = |cell: &str| match cell.split_once(" = ") {
            Some((name, number)) => (name == size).then(|| number.to_owned()),
            None => cell.strip_suffix(&format!(" {size}")).map(str::to_owned),
        };
        let rows: Vec<Vec<String>> =
            (table.rows.iter()).filter_map(|row| Some([&[number(&row[0])?], &row[1..]].concat())).collect();
        let own = Table { header: table.header.clone(), rows };
        let series = (1..own.header.len())
            .map(|column| Series::new(&*own.header[column], look(&own.header[column]), own.points(0, column, |_| true)))
            .filter(|series| !series.points.is_empty());
        let y_label = format!("milliseconds; {fixed}");
        Panel::new(
            &format!("{method} over {x_label}"),
            [x_label, &y_label],
            [scale, Scale::Logarithmic],
            series.collect(),
        )
    });
    let note = "float32 on an H200. copy moves the same bytes; authors is the code of the paper's authors.";
    figure(&format!("gpu/{method}"), "", panels.to_vec(), note)
}

/// Errors of sketched gradients: docs/torch.md.
fn gradients(table: &Table) -> Result<Figure, Failure> {
    let series: Vec<Series> = (1..table.header.len())
        .map(|column| {
            let (name, points) = (&*table.header[column], table.points(0, column, |_| true));
            let other = Style { mark: Mark::Dot, ..Style::numbered(COLOURS.len() - 1) };
            Series::new(name, name.parse().map_or(other, Style::of), points)
        })
        .collect();
    let note = key(&series) + " two-sided is the projection that attribution packages use.";
    let panel = Panel::new(
        "Sketches of per-sample gradients",
        ["numbers for each layer", "relative error of inner products, mean over layers"],
        [Scale::Doubling, Scale::Logarithmic],
        series,
    );
    figure("torch-gradients", "", vec![panel], &note)
}

/// Accuracy over time of online learning: docs/torch.md.
fn online(table: &Table) -> Result<Figure, Failure> {
    let panels = ["ctr-product-srht", "product-srht", "tensor-sketch"].map(|method| {
        let line = |code: &str, style: Style| {
            Series::new(code, style, table.points(3, 4, |row| row[0] == method && row[1] == code))
        };
        let plain = Style { mark: Mark::None, ..Style::numbered(COLOURS.len() - 1) };
        let own = method.parse().map_or(plain, |method| Style {
            stroke: Stroke::Solid,
            mark: Mark::None,
            ..Style::of(method)
        });
        Panel::new(
            method,
            ["seconds of training", "test accuracy, %"],
            [Scale::Linear; 2],
            vec![line("Argand", own), line("plain PyTorch", plain)],
        )
    });
    let note = "Six epochs over 50,000 rows of CIFAR-10 features, D = 4096, batches of 32, on an H200.";
    figure("torch-online", "", panels.to_vec(), note)
}

/// Accuracy of kinds of pooling: docs/torch.md.
fn pooling(table: &Table) -> Result<Figure, Failure> {
    let mut heads: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !heads.contains(&&*row[0]) {
            heads.push(&row[0]);
        }
    }
    let series = heads.iter().enumerate().map(|(index, &head)| {
        let [one, other] = ["0", "1"].map(|seed| table.points(2, 3, |row| row[0] == head && row[1] == seed));
        let both = one.iter().zip(&other);
        let means = both.clone().map(|(one, other)| (one.0, f64::midpoint(one.1, other.1)));
        let look = head.split_once(", ").and_then(|(_, method)| method.parse().ok());
        let style = look.map_or(Style { mark: Mark::Dot, ..Style::numbered([6, 2, 0, 1][index % 4]) }, |method| {
            Style { stroke: Stroke::Solid, ..Style::of(method) }
        });
        Series::new(head, style, means).with_bars(both.map(|(one, other)| (one.1 - other.1).abs() / 2.0))
    });
    let panel = Panel::new(
        "Pooling of a small network on Fashion-MNIST",
        ["epoch", "test accuracy, %"],
        [Scale::Linear; 2],
        series.collect(),
    );
    figure("torch-pooling", "", vec![panel], "The mean of two seeds; bars reach to both.")
}
