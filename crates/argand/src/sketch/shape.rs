//! How p factors combine: as a list of joins.
//!
//! A join is the element-wise product of projected operands, divided by √m. An operand is the input of a factor, or the
//! result of an earlier join, which is projected again. All shapes differ in their joins only:
//!
//! | shape | joins for p = 4 |
//! |---|---|
//! | flat | (x₁ x₂ x₃ x₄) |
//! | tree | ((x₁ x₂) (x₃ x₄)) |
//! | chain | (((x₁ x₂) x₃) x₄) |

use crate::spec::Shape;

/// What a join takes as an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// The input of this factor.
    Factor(usize),
    /// The result of this join.
    Join(usize),
}

/// One join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) operands: Vec<Operand>,
    /// Where its result is kept; a place is used again once its result was an operand.
    pub(super) slot: usize,
}

/// The joins of a sketch with `degree` factors, operands before those that use them; the last one is the result.
pub(super) fn joins(shape: Shape, degree: usize) -> Vec<Join> {
    use Operand::{Factor, Join as Joined};
    let mut operands: Vec<Vec<Operand>> = Vec::new();
    match shape {
        Shape::Flat => operands.push((0..degree).map(Factor).collect()),
        Shape::Chain => {
            operands.push((0..degree.min(2)).map(Factor).collect());
            operands.extend((2..degree).map(|factor| vec![Joined(factor - 2), Factor(factor)]));
        }
        Shape::Tree => {
            if let Factor(only) = grow(0, degree, &mut operands) {
                operands.push(vec![Factor(only)]);
            }
        }
    }
    let mut joins: Vec<Join> = Vec::with_capacity(operands.len());
    let mut taken: Vec<bool> = Vec::new();
    for operands in operands {
        // The result needs a place while its operands still have theirs.
        let slot = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        if slot == taken.len() {
            taken.push(false);
        }
        taken[slot] = true;
        for operand in &operands {
            if let Joined(join) = *operand {
                taken[joins[join].slot] = false;
            }
        }
        joins.push(Join { operands, slot });
    }
    joins
}

/// Joins the factors `first..end` in halves, the larger one first; a number that is no power of two needs no padding.
fn grow(first: usize, end: usize, joins: &mut Vec<Vec<Operand>>) -> Operand {
    if end - first == 1 {
        return Operand::Factor(first);
    }
    let middle = first + (end - first).div_ceil(2);
    let pair = vec![grow(first, middle, joins), grow(middle, end, joins)];
    joins.push(pair);
    Operand::Join(joins.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape, degree: usize) -> String {
        let joins = joins(shape, degree);
        fn draw(joins: &[Join], join: usize) -> String {
            let operand = |operand: &Operand| match operand {
                Operand::Factor(factor) => factor.to_string(),
                Operand::Join(join) => draw(joins, *join),
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

    /// A slot is never overwritten while its result is still to be used.
    #[test]
    fn slots_hold_until_used() {
        for shape in [Shape::Flat, Shape::Tree, Shape::Chain] {
            for degree in 1..40 {
                let joins = joins(shape, degree);
                for (index, join) in joins.iter().enumerate() {
                    for operand in &join.operands {
                        let Operand::Join(source) = *operand else { continue };
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
