//! The SVG document: text is added from top to bottom.

use std::fmt::Write;

use super::style::{DARK, FONT, LIGHT, where_dark};

/// The width of a timeline's picture.
pub(super) const WIDTH: f64 = 960.0;
/// The distance from the left edge to titles.
pub(super) const MARGIN: f64 = 16.0;
/// The distance from the left edge to the plots.
pub(super) const LEFT: f64 = 68.0;
/// The distance from the plots to the right edge.
pub(super) const RIGHT: f64 = 20.0;
/// The approximate width of a letter, as a share of the font size.
const LETTER: f64 = 0.56;

/// A page being written.
#[derive(Debug)]
pub(super) struct Page {
    width: f64,
    body: String,
    styles: String,
    dark: String,
    y: f64,
}

impl Page {
    pub(super) fn new(width: f64) -> Self {
        Self { width, body: String::new(), styles: String::new(), dark: String::new(), y: 0.0 }
    }

    /// How far down the page is written.
    pub(super) fn y(&self) -> f64 {
        self.y
    }

    /// Leaves vertical space.
    pub(super) fn down(&mut self, by: f64) {
        self.y += by;
    }

    /// Adds a style rule for a class.
    pub(super) fn style(&mut self, rule: &str) {
        if !self.styles.contains(rule) {
            self.styles += rule;
        }
    }

    /// Adds a style rule for a class on a dark ground.
    pub(super) fn dark_style(&mut self, rule: &str) {
        if !self.dark.contains(rule) {
            self.dark += rule;
        }
    }

    /// Adds elements without change.
    pub(super) fn add(&mut self, elements: &str) {
        self.body += elements;
        self.body.push('\n');
    }

    /// Adds a path, unless it is empty.
    pub(super) fn path(&mut self, class: &str, data: &str) {
        if !data.is_empty() {
            self.add(&format!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    /// Adds a line of text at the current height.
    pub(super) fn text(&mut self, x: f64, class: &str, text: &str) {
        self.text_at(x, self.y, class, text);
    }

    /// Adds a line of text at any place.
    pub(super) fn text_at(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (px(x), px(y), escaped(text));
        self.add(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"));
    }

    /// A document of its own.
    pub(super) fn finish(self, title: &str) -> String {
        let height = self.height();
        let mut document = String::new();
        write!(
            document,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FONT}\">\n\
             <title>{}</title>\n<style>{LIGHT}{}{}</style>\n\
             <rect class=\"o\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{}</svg>\n",
            escaped(title),
            self.styles,
            where_dark(&format!("{DARK}{}", self.dark)),
            self.body,
            width = px(self.width),
        )
        .expect("a string takes all text");
        document
    }

    /// A part of a page that has the styles. `attributes` are added to it.
    pub(super) fn part(self, title: &str, attributes: &str) -> String {
        let (width, height) = (px(self.width), self.height());
        let label = escaped(title);
        format!(
            "<svg role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width} {height}\"{attributes}>\n{}\
             </svg>\n",
            self.body
        )
    }

    fn height(&self) -> String {
        px((self.y + 14.0).ceil())
    }
}

/// The approximate width of a text at this size.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * LETTER
}

/// A text as it stands in a document or in an attribute.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// As much of a text as has room in this width.
pub(super) fn cut(text: &str, size: f64, width: f64) -> String {
    let most = (width / (size * LETTER)).max(2.0) as usize;
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A number of pixels in as few characters as needed.
pub(super) fn px(pixels: f64) -> String {
    let text = format!("{:.2}", pixels + 0.0);
    let short = shorten(&text);
    match short.strip_prefix("0.") {
        Some(decimals) => format!(".{decimals}"),
        None => short.to_owned(),
    }
}

/// A number without needless zeros at its end.
pub(super) fn shorten(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}
