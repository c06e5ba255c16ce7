//! Pictures as pixels.

use std::sync::{Arc, LazyLock};

use resvg::{tiny_skia, usvg};

use crate::Error;

/// One font for all pictures: they look alike even on machines without fonts.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    fonts.set_sans_serif_family(family.unwrap_or_default());
    Arc::new(fonts)
});

/// A picture as pixels, at twice its size.
///
/// # Errors
/// [`Error::Internal`] if it cannot be drawn.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, Error> {
    let internal = |what: String| Error::Internal(format!("cannot draw a PNG: {what}"));
    let options = usvg::Options { fontdb: Arc::clone(&FONTS), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| internal(error.to_string()))?;
    let size = tree.size().to_int_size().scale_by(2.0).ok_or_else(|| internal("no size".to_owned()))?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).ok_or_else(|| internal("no memory".to_owned()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| internal(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use argand_figure::{COLOURS, Figure, Panel, Scale, Series, Style};

    #[test]
    fn pictures_have_lines_and_text() {
        let series = vec![Series::new("first", Style::numbered(0), [(64.0, 0.1), (512.0, 0.01)])];
        let panel = Panel::new("title", ["x", "y"], [Scale::Doubling, Scale::Logarithmic], series);
        let figure = Figure {
            name: String::new(),
            caption: String::new(),
            columns: 1,
            panels: vec![panel],
            note: String::new(),
        };
        let png = png(&figure.svg()).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(pixels.width(), 2 * 480);
        let blue =
            pixels.pixels().iter().filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) == COLOURS[0]).count();
        let dark =
            pixels.pixels().iter().filter(|pixel| pixel.red() < 60 && pixel.green() < 60 && pixel.blue() < 60).count();
        assert!(blue > 500 && dark > 500, "{blue} pixels of a line, {dark} of text and axes");
    }
}
