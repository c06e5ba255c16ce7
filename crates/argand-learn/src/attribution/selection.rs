//! Which layers are scored, and where their columns are in both stores.

use std::ops::Range;

use argand::{Argument, Error};

use super::store::{Layer, Store, Terms, fault};

/// The chosen layers of two stores. Their columns, one layer after the other, are called places.
pub(super) struct Selection {
    pub(super) layers: Vec<Chosen>,
    /// The number of places.
    pub(super) width: usize,
}

/// A chosen layer.
pub(super) struct Chosen {
    pub(super) name: String,
    /// Its columns among the examples that are scored, and among the queries.
    pub(super) train: Range<usize>,
    pub(super) query: Range<usize>,
    pub(super) places: Range<usize>,
    pub(super) terms: Terms,
}

impl Chosen {
    /// Rows of its projection.
    pub(super) fn rows(&self) -> usize {
        match self.terms {
            Terms::Single => self.places.len(),
            Terms::Halves | Terms::Neighbours => self.places.len() / 2,
        }
    }

    /// Where the numbers of a row of its projection are: one, or a real and an imaginary part.
    pub(super) fn places_of(&self, row: usize) -> (usize, Option<usize>) {
        let start = self.places.start;
        match self.terms {
            Terms::Single => (start + row, None),
            Terms::Halves => (start + row, Some(start + self.rows() + row)),
            Terms::Neighbours => (start + 2 * row, Some(start + 2 * row + 1)),
        }
    }
}

impl Selection {
    /// The layers whose names match one of the patterns, or all without any, if both stores have them from one sketch and one model.
    pub(super) fn new(train: &Store, queries: &Store, patterns: &[String]) -> Result<Self, Error> {
        let matches = |pattern: &String, layer: &Layer| matches(pattern, &layer.name);
        if let Some(pattern) =
            patterns.iter().find(|pattern| !train.layers().iter().any(|layer| matches(pattern, layer)))
        {
            let names = listed(train.layers().iter().map(|layer| layer.name.as_str()));
            return Err(Error::invalid(Argument::Layers, format!("patterns of {names}"), format!("\"{pattern}\"")));
        }
        if let (Some(one), Some(other)) = (train.model(), queries.model())
            && one != other
        {
            let what = format!(
                "holds gradients of another model ({}) than {} ({}); record both with the same weights",
                short(other),
                train.path().display(),
                short(one)
            );
            return Err(fault(queries.path(), what));
        }
        let chosen = |layer: &&Layer| patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, layer));
        if let Some(layer) = queries.layers().iter().filter(chosen).find(|layer| of_name(train, &layer.name).is_none())
        {
            return Err(absent(queries, layer, train));
        }
        let (mut layers, mut width) = (Vec::new(), 0);
        for layer in train.layers().iter().filter(chosen) {
            let other = of_name(queries, &layer.name).ok_or_else(|| absent(train, layer, queries))?;
            compare(layer, other, train, queries)?;
            let places = width..width + layer.columns.len();
            width = places.end;
            let (train, query) = (layer.columns.clone(), other.columns.clone());
            layers.push(Chosen { name: layer.name.clone(), train, query, places, terms: layer.terms() });
        }
        Ok(Self { layers, width })
    }

    /// Columns of the train store that lie side by side, and their places.
    pub(super) fn runs(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut runs: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        for Chosen { train, places, .. } in &self.layers {
            match runs.last_mut() {
                Some((before, all)) if before.end == train.start => (before.end, all.end) = (train.end, places.end),
                _ => runs.push((train.clone(), places.clone())),
            }
        }
        runs
    }

    /// The chosen numbers of a row of the train store.
    pub(super) fn gather<'a>(&'a self, row: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        self.layers.iter().flat_map(|layer| &row[layer.train.clone()]).copied()
    }
}

fn of_name<'a>(store: &'a Store, name: &str) -> Option<&'a Layer> {
    store.layers().iter().find(|layer| layer.name == name)
}

fn absent(with: &Store, layer: &Layer, without: &Store) -> Error {
    let (name, with) = (&layer.name, with.path().display());
    let advice = "record both with the same layers, or choose layers that both have";
    fault(without.path(), format!("has no layer \"{name}\", which {with} has; {advice}"))
}

fn compare(layer: &Layer, other: &Layer, train: &Store, queries: &Store) -> Result<(), Error> {
    let wrong = |what: String| {
        let (name, train) = (&layer.name, train.path().display());
        let advice = "record both with the same sketches, or choose other layers";
        Err(fault(queries.path(), format!("layer \"{name}\" {what} in {train}; {advice}")))
    };
    if layer.columns.len() != other.columns.len() {
        return wrong(format!("has {} features, and {}", other.columns.len(), layer.columns.len()));
    }
    let shape = |layer: &Layer| format!("{} of {} to {}", layer.kind, layer.inputs, layer.outputs);
    if shape(layer) != shape(other) {
        return wrong(format!("is {}, and {}", shape(other), shape(layer)));
    }
    match (&layer.spec, &other.spec) {
        (one, other) if one == other => Ok(()),
        (Some(one), Some(other)) => wrong(format!(
            "has the sketch {} of seed {}, and {} of seed {}",
            other.method, other.seed, one.method, one.seed
        )),
        (one, _) => wrong(if one.is_some() {
            "has no sketch of Argand's, but one".to_owned()
        } else {
            "has a sketch of Argand's, and none".to_owned()
        }),
    }
}

/// Some of the names.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Whether a name matches a pattern, in which `*` is any text and `?` any character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of, mut retry) = (0, 0, None);
    while at < name.len() {
        if pattern.get(of) == Some(&'*') {
            retry = Some((at, of));
            of += 1;
        } else if pattern.get(of).is_some_and(|&c| c == '?' || c == name[at]) {
            (at, of) = (at + 1, of + 1);
        } else if let Some((from, star)) = retry {
            // The last star takes one character more.
            retry = Some((from + 1, star));
            (at, of) = (from + 1, star + 1);
        } else {
            return false;
        }
    }
    pattern[of..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("blocks.*.fc?", "blocks.10.fc2", true),
            ("blocks.*.fc?", "blocks.10.fc", false),
            ("*", "", true),
            ("", "x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("ä?", "äö", true),
            ("a", "aa", false),
            ("**", "x", true),
        ] {
            assert_eq!(super::matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
