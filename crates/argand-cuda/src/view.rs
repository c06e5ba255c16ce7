//! Tables in device memory.

use argand::{Argument, Error};

/// The type of numbers in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// Single precision.
    F32,
    /// Half precision, computed with in single precision.
    F16,
    /// bfloat16, computed with in single precision.
    Bf16,
    /// Double precision.
    F64,
}

impl Element {
    /// `Element` in the kernels.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Bf16 => 2,
            Self::F64 => 3,
        }
    }

    /// Bytes of one number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F64 => "float64",
        }
    }
}

/// A table in device memory: rows of numbers, `stride` numbers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRows {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

impl DeviceRows {
    /// A table in somebody's device memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if rows overlap, the address is not aligned to the numbers, or the table is larger than an address space.
    ///
    /// # Safety
    /// The memory holds `rows` rows of `columns` numbers of this type, `stride` numbers apart, on the device of every sketch
    /// and stream that it is passed to, until their work is done; what features are written to is not used by others meanwhile.
    #[allow(unsafe_code, reason = "nobody can check an address")]
    pub unsafe fn from_address(
        address: u64,
        element: Element,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        if rows > 1 && stride < columns {
            return Err(Error::invalid(Argument::Rows, format!("rows at least {columns} numbers apart"), stride));
        }
        if !address.is_multiple_of(element.bytes() as u64) || (address == 0 && rows > 0 && columns > 0) {
            let expected = format!("an address that {} numbers can have", element.name());
            return Err(Error::invalid(Argument::Data, expected, address));
        }
        let bytes = rows.checked_mul(stride.max(columns)).and_then(|numbers| numbers.checked_mul(element.bytes()));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(Error::invalid(Argument::Rows, "a table that fits into memory", rows));
        }
        Ok(Self { address, element, rows, columns, stride })
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The type of its numbers.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Some of its rows.
    pub(crate) fn range(&self, first: usize, rows: usize) -> Self {
        Self { address: self.address + (first * self.stride * self.element.bytes()) as u64, rows, ..*self }
    }
}
