//! The text of a mail that came as HTML alone, made with memory and time that grow with its length and no faster.
use std::borrow::Cow;

const WIDTH: usize = 78;
/// The parser looks through all open tags again and again: with more than these, tags are taken out instead of understood.
const MOST_TAGS: usize = 5_000;
/// Of these each level within another one is set in a narrower column of its own.
const MOST_INDENTED: usize = 500;

/// Tables become blocks: set as columns, each row would take as much memory as the widest one, and a cell as much as it says
/// in `rowspan` and `colspan`. What is bold or the like is opened again in each paragraph that follows until it is closed, so
/// many of them in many paragraphs would be millions of elements.
const PLAINER: &[(&str, &str)] = &[
    ("table", "div"),
    ("thead", "div"),
    ("tbody", "div"),
    ("tfoot", "div"),
    ("colgroup", "div"),
    ("caption", "p"),
    ("col", "p"),
    ("tr", "p"),
    ("th", "p"),
    ("td", "p"),
    ("b", "span"),
    ("big", "span"),
    ("code", "span"),
    ("em", "span"),
    ("font", "span"),
    ("i", "span"),
    ("nobr", "span"),
    ("s", "span"),
    ("small", "span"),
    ("strike", "span"),
    ("strong", "span"),
    ("tt", "span"),
    ("u", "span"),
];
const INDENTED: &[(&str, &str)] = &[
    ("blockquote", "div"),
    ("ul", "div"),
    ("ol", "div"),
    ("dl", "div"),
    ("dd", "div"),
    ("li", "div"),
    ("pre", "div"),
];

pub fn text_of(html: &str) -> String {
    if has_more_tags(html, MOST_TAGS) {
        return without_tags(html);
    }
    let (plain, _) = renamed(html, PLAINER);
    let indented = renamed(&plain, INDENTED);
    let plain = if indented.1 > MOST_INDENTED { indented.0 } else { plain };
    html2text::from_read(plain.as_bytes(), WIDTH).unwrap_or_else(|_| without_tags(html))
}

pub fn has_more_tags(html: &str, most: usize) -> bool {
    html.bytes().filter(|byte| *byte == b'<').count() > most
}

/// What stands between tags, whatever they mean.
pub fn without_tags(html: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(html.len()), html);
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        rest = rest[start..].find('>').map_or("", |end| &rest[start + end + 1..]);
    }
    text + rest
}

/// The HTML with other names for some tags, and how many of them there were. Only names change, so nothing becomes a tag that
/// was none.
fn renamed<'a>(html: &'a str, names: &[(&str, &str)]) -> (Cow<'a, str>, usize) {
    let (mut changed, mut kept, mut count) = (String::new(), 0, 0);
    for (start, _) in html.match_indices('<') {
        let at = start + if html[start + 1..].starts_with('/') { 2 } else { 1 };
        let name = &html[at..];
        let name = &name[..name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len())];
        if let Some((_, new)) = names.iter().find(|(old, _)| name.eq_ignore_ascii_case(old)) {
            changed.push_str(&html[kept..at]);
            changed.push_str(new);
            (kept, count) = (at + name.len(), count + 1);
        }
    }
    if count == 0 {
        return (Cow::Borrowed(html), 0);
    }
    changed.push_str(&html[kept..]);
    (Cow::Owned(changed), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lists_links_and_cells_are_there() {
        let html = "<h1>Bill</h1><p>Dear <b>Zo&euml;</b>,</p><ul><li>tea</li></ul><a href='https://a.example'>pay</a>
            <TABLE border=1><tr><td>Tea<td rowspan=9000000 colspan=9000000>3 &euro;</table>";
        let text = text_of(html);
        for part in ["# Bill", "Dear Zoë,", "* tea", "[pay]", "https://a.example", "Tea", "3 €"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(renamed("a < b </td x><tdx>", PLAINER).0, "a < b </p x><tdx>");
    }

    /// Each filled memory, or took minutes.
    #[test]
    fn hostile_html_costs_little() {
        const SIZE: usize = 512 * 1024;
        let repeat = |piece: &str| piece.repeat(SIZE / piece.len());
        let half = |piece: &str| piece.repeat(SIZE / 2 / piece.len());
        let most = |piece: &str| piece.repeat(MOST_TAGS.min(SIZE / piece.len()));
        let marks = |tag: &str| (0..MOST_TAGS / 2).fold(String::new(), |all, n| all + &format!("<{tag} x={n}>"));
        for html in [
            marks("b") + &"<p>x".repeat(MOST_TAGS / 2),
            marks("a") + &"<p>x".repeat(MOST_TAGS / 2),
            marks("FONT") + &"<p>x".repeat(MOST_TAGS / 2),
            marks("span") + &"<p>x".repeat(MOST_TAGS / 2),
            format!("<table><tr>{}{}", "<td>".repeat(30_000), "<tr><td>".repeat(30_000)),
            format!("<table><tr>{}{}", "<td>".repeat(10_000), "<tr><td>".repeat(5_000)),
            format!("<table>{}", most("<tr><td rowspan=9999 colspan=9999>x")),
            most("<table><tr><td>"),
            most("<blockquote>") + "x",
            format!("{}{}", "<blockquote>".repeat(MOST_INDENTED), half("word ")),
            format!("{}{}", "<ul><li>".repeat(MOST_INDENTED / 2), half("word ")),
            most("<ul><li>x"),
            most("<div>x"),
            most("<b>x"),
            most("<svg><g>"),
            most("<select><option>"),
            repeat("<div>"),
            repeat("&nbsp;"),
            repeat("x"),
            repeat("<!--"),
            repeat("<p "),
        ] {
            let began = tokio::time::Instant::now();
            let text = text_of(&html);
            let (took, shown) = (began.elapsed().as_secs_f64(), html.get(..40).unwrap_or_default());
            println!("{took:6.2} s {:9} bytes {shown}", text.len());
            assert!(took < 60.0, "{shown}: {took} s");
            assert!(text.len() < 8 * SIZE, "{shown}: {} bytes", text.len());
        }
    }
}
