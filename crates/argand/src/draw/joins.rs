//! How p factors combine: as a list of joins.
//!
//! A join is the element-wise product of projected operands, divided by √m. An operand is the input of a factor, or the
//! result of an earlier join, which is projected again. Shapes differ only in their joins:
//!
//! | shape | joins for p = 4 |
//! |---|---|
//! | flat | (x₁ x₂ x₃ x₄) |
//! | tree | ((x₁ x₂) (x₃ x₄)) |
//! | chain | (((x₁ x₂) x₃) x₄) |

use crate::spec::Shape;

/// The source of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The input x̃ of this factor.
    Factor(usize),
    /// The result of this join.
    Join(usize),
}

/// An operand and its projection.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand<P> {
    /// What is projected.
    pub source: Source,
    /// The projection.
    pub projection: P,
}

/// The element-wise product of projected operands, divided by √m.
#[derive(Debug, Clone, PartialEq)]
pub struct Join<P> {
    /// The operands.
    pub operands: Vec<Operand<P>>,
    /// The slot of its result; slots are reused once their result has been consumed.
    pub slot: usize,
}

impl<P> Join<P> {
    /// The same join with other projections.
    pub(crate) fn map<Q>(self, mut of: impl FnMut(P) -> Q) -> Join<Q> {
        let operands = self
            .operands
            .into_iter()
            .map(|Operand { source, projection }| Operand { source, projection: of(projection) });
        Join { operands: operands.collect(), slot: self.slot }
    }
}

/// The joins of a sketch with `degree` factors, operands before their users; the last one is the result.
pub(super) fn joins<P>(shape: Shape, degree: usize, projection: impl Fn(Source) -> P) -> Vec<Join<P>> {
    use Source::{Factor, Join as Joined};
    let mut sources: Vec<Vec<Source>> = Vec::new();
    match shape {
        Shape::Flat => sources.push((0..degree).map(Factor).collect()),
        Shape::Chain => {
            sources.push((0..degree.min(2)).map(Factor).collect());
            sources.extend((2..degree).map(|factor| vec![Joined(factor - 2), Factor(factor)]));
        }
        Shape::Tree => {
            if let Factor(only) = grow(0, degree, &mut sources) {
                sources.push(vec![Factor(only)]);
            }
        }
    }
    let mut joins: Vec<Join<P>> = Vec::with_capacity(sources.len());
    let mut taken: Vec<bool> = Vec::new();
    for sources in sources {
        // The result needs a slot while its operands still occupy theirs.
        let slot = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        if slot == taken.len() {
            taken.push(false);
        }
        taken[slot] = true;
        for source in &sources {
            if let Joined(join) = *source {
                taken[joins[join].slot] = false;
            }
        }
        let operands = sources.into_iter().map(|source| Operand { source, projection: projection(source) });
        joins.push(Join { operands: operands.collect(), slot });
    }
    joins
}

/// Joins the factors `first..end` in halves, the larger one first; counts other than powers of two need no padding.
fn grow(first: usize, end: usize, joins: &mut Vec<Vec<Source>>) -> Source {
    if end - first == 1 {
        return Source::Factor(first);
    }
    let middle = first + (end - first).div_ceil(2);
    let pair = vec![grow(first, middle, joins), grow(middle, end, joins)];
    joins.push(pair);
    Source::Join(joins.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape, degree: usize) -> String {
        let joins = joins(shape, degree, |_| ());
        fn draw(joins: &[Join<()>], join: usize) -> String {
            let operand = |operand: &Operand<()>| match operand.source {
                Source::Factor(factor) => factor.to_string(),
                Source::Join(join) => draw(joins, join),
            };
            format!("({})", joins[join].operands.iter().map(operand).collect::<Vec<_>>().join(" "))
        }
        draw(&joins, joins.len() - 1)
    }

    #[test]
    fn shapes_are_as_drawn() {
        for shape in [Shape::Flat, Shape::Tree, Shape::Chain] {
            assert_eq!([drawn(shape, 1), drawn(shape, 2)], ["(0)", "(0 1)"]);
        }
        assert_eq!(drawn(Shape::Flat, 4), "(0 1 2 3)");
        assert_eq!(drawn(Shape::Tree, 4), "((0 1) (2 3))");
        assert_eq!(drawn(Shape::Chain, 4), "(((0 1) 2) 3)");
        assert_eq!(drawn(Shape::Tree, 7), "(((0 1) (2 3)) ((4 5) 6))");
    }

    /// A slot is never overwritten before its result is used.
    #[test]
    fn slots_hold_until_used() {
        for shape in [Shape::Flat, Shape::Tree, Shape::Chain] {
            for degree in 1..40 {
                let joins = joins(shape, degree, |_| ());
                for (index, join) in joins.iter().enumerate() {
                    for operand in &join.operands {
                        let Source::Join(source) = operand.source else { continue };
                        let between = &joins[source + 1..=index];
                        assert!(between.iter().all(|later| later.slot != joins[source].slot), "{shape:?} {degree}");
                    }
                }
                let slots = joins.iter().map(|join| join.slot).max().unwrap_or(0) + 1;
                assert!(slots <= 2 + degree.ilog2() as usize, "{shape:?} {degree}: {slots} slots");
            }
        }
    }
}
