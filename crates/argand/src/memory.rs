//! Memory for results.

/// Results from this size on are worth large pages.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// Untouched zeros, in large pages where the system has them: the first write to a page pays for it, so let all threads write.
pub(crate) fn untouched<T: Clone + Default>(length: usize) -> Vec<T> {
    let values = vec![T::default(); length];
    #[cfg(target_os = "linux")]
    prefer_large_pages(&values);
    values
}

/// Requests large pages for a slice. Without them, only the first writes take longer.
#[cfg(target_os = "linux")]
fn prefer_large_pages<T>(values: &[T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(values);
    if bytes < LARGE {
        return;
    }
    let start = values.as_ptr().addr().next_multiple_of(PAGE);
    let end = (values.as_ptr().addr() + bytes) / PAGE * PAGE;
    #[allow(unsafe_code, reason = "madvise has no safe equivalent")]
    // SAFETY: the pages lie inside the slice, and this advice changes neither their contents nor their ownership.
    let _ = unsafe {
        let first = values.as_ptr().with_addr(start).cast_mut().cast();
        rustix::mm::madvise(first, end - start, rustix::mm::Advice::LinuxHugepage)
    };
}
