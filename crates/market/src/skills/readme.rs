//! The text of `SKILL.md` as HTML that is safe on a page: no HTML of its own, no pictures, no links but to the web.
use comrak::{Arena, Options, html, nodes::NodeValue, parse_document};

/// How much of a text is drawn.
const LONGEST: usize = 200 * 1024;

/// Markdown as HTML. What is HTML in it is left out, pictures become links, and links that lead elsewhere than to the web or
/// to a mailbox become their text.
pub fn draw(markdown: &str) -> String {
    let mut end = markdown.len().min(LONGEST);
    while !markdown.is_char_boundary(end) {
        end -= 1;
    }
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.strikethrough = true;
    options.extension.tasklist = false;
    let arena = Arena::new();
    let root = parse_document(&arena, &markdown[..end], &options);
    let nodes: Vec<_> = root.descendants().collect();
    for node in nodes {
        let link = match &node.data.borrow().value {
            NodeValue::Link(link) | NodeValue::Image(link) => link.clone(),
            _ => continue,
        };
        if is_of_the_web(&link.url) {
            node.data.borrow_mut().value = NodeValue::Link(link);
        } else {
            let children: Vec<_> = node.children().collect();
            for child in children {
                node.insert_before(child);
            }
            node.detach();
        }
    }
    let mut drawn = String::new();
    if html::format_document(root, &options, &mut drawn).is_err() {
        return String::new();
    }
    // Text never has a bare `<`, so this is always a link of our own.
    drawn.replace("<a href=\"", "<a rel=\"nofollow noopener ugc\" href=\"")
}

fn is_of_the_web(url: &str) -> bool {
    let lower = url.trim().to_ascii_lowercase();
    ["https://", "http://", "mailto:"].iter().any(|scheme| lower.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m21_nothing_active_is_in_a_readme() {
        let html = draw(
            "# Title\n\n<script>alert(1)</script>\n\n<form action=x><input></form>\n\n<svg onload=x></svg> text <b onclick=x>b</b>\n\n\
             [a](javascript:alert(1)) [b](JAVASCRIPT:x) [c](data:text/html,x) [d](https://example.com/?a=1&b=\"2\") [e](../x) [f]( \tjava\nscript:x)\n\n\
             ![picture](https://tracker.example/p.png) ![svg](data:image/svg+xml;base64,AAAA) ![](//x.example/y)\n\n\
             <javascript:alert(1)> <https://example.org>\n\n| a | b |\n|---|---|\n| 1 | <img src=x onerror=y> |\n\n\
             [ref]\n\n[ref]: vbscript:x\n\n`<i>code</i>` &lt;script&gt;\n",
        );
        let lower = html.to_lowercase();
        for bad in [
            "<script",
            "<form",
            "<input",
            "<svg",
            "<img",
            "onclick=",
            "onerror=y>",
            "javascript:alert(1)\"",
            "href=\"data:",
            "vbscript:x\"",
            "<iframe",
            "<style",
            "href=\"java",
            "src=",
        ] {
            assert!(!lower.contains(bad), "{bad} in {html}");
        }
        assert!(html.contains("<h1>Title</h1>") && html.contains("<table>"), "{html}");
        assert!(html.contains("<a rel=\"nofollow noopener ugc\" href=\"https://example.com/?a=1&amp;b="), "{html}");
        assert!(html.contains("href=\"https://tracker.example/p.png\""), "a picture is a link: {html}");
        assert!(draw(&"\u{e9}".repeat(300_000)).len() < 220_000);
    }
}
