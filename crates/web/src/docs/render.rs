//! One document as HTML: headings with anchors, a table of contents, code with a button to copy it, and links that lead to
//! other pages of the site.
use std::fmt::{self, Write as _};

use comrak::{
    Anchorizer, Arena, Options,
    html::{self, ChildRendering, Context, format_document_with_formatter, format_node_default},
    nodes::{Node, NodeValue},
    options::Plugins,
    parse_document,
};
use serde::Serialize;

use super::{diagram, list, pictures::size_of};

/// A heading below the title.
#[derive(Clone, Serialize)]
pub struct Heading {
    pub level: u8,
    pub anchor: String,
    pub text: String,
}

/// A part of a document that search finds: a heading and the text below it.
pub struct Passage {
    /// Empty for the text before the first heading.
    pub anchor: String,
    pub heading: String,
    pub text: String,
}

pub struct Rendered {
    pub title: String,
    pub html: String,
    pub headings: Vec<Heading>,
    pub passages: Vec<Passage>,
}

/// What the formatter knows besides the node it draws.
struct Pen {
    /// The icon of buttons that copy.
    copy: String,
    /// The anchors of headings that are still to come, in order.
    anchors: std::vec::IntoIter<String>,
    blocks: usize,
    tables: usize,
}

pub fn render(entry: &list::Entry, copy: &str) -> Rendered {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.strikethrough = true;
    options.extension.autolink = true;
    let arena = Arena::new();
    let root = parse_document(&arena, entry.markdown, &options);
    let nodes: Vec<_> = root.descendants().collect();
    for node in nodes {
        lead(node, entry.file);
    }
    let mut anchorizer = Anchorizer::new();
    let (mut title, mut all, mut passages) = (String::new(), vec![], vec![]);
    let mut passage = Passage { anchor: String::new(), heading: String::new(), text: String::new() };
    for node in root.children() {
        let level = match &node.data().value {
            NodeValue::Heading(heading) => Some(heading.level),
            _ => None,
        };
        let Some(level) = level else {
            append_text(node, &mut passage.text);
            continue;
        };
        let text = node.collect_text();
        let anchor = anchorizer.anchorize(&text);
        if level == 1 && title.is_empty() {
            title.clone_from(&text);
        } else {
            let next = Passage { anchor: anchor.clone(), heading: text.clone(), text: String::new() };
            passages.push(std::mem::replace(&mut passage, next));
        }
        all.push(Heading { level, anchor, text });
    }
    passages.push(passage);
    let anchors: Vec<String> = all.iter().map(|heading| heading.anchor.clone()).collect();
    let pen = Pen { copy: copy.to_owned(), anchors: anchors.into_iter(), blocks: 0, tables: 0 };
    let mut drawn = String::new();
    if format_document_with_formatter(root, &options, &mut drawn, &Plugins::default(), draw, pen).is_err() {
        drawn.clear();
    }
    // A head over nothing names nothing. Text never has a bare `<`, so this is a cell of ours.
    let drawn = drawn
        .replace("<th></th>", "<td></td>")
        .replace("<th ", "<th scope=\"col\" ")
        .replace("<th>", "<th scope=\"col\">");
    let headings = all.into_iter().filter(|heading| (2..=3).contains(&heading.level)).collect();
    Rendered { title, html: drawn, headings, passages }
}

/// Turns what a link or picture leads to into a page of the site. What the site does not show stays as its text: a file of the
/// source is no page of a server.
fn lead(node: Node<'_>, file: &str) {
    let url = match &node.data().value {
        NodeValue::Link(link) | NodeValue::Image(link) => link.url.clone(),
        _ => return,
    };
    match target(&url, file) {
        Some(to) => {
            name(node, &to);
            if let NodeValue::Link(link) | NodeValue::Image(link) = &mut node.data_mut().value {
                link.url = to;
            }
        }
        None => {
            let children: Vec<_> = node.children().collect();
            for child in children {
                node.insert_before(child);
            }
            node.detach();
        }
    }
}

/// A link whose text is a file (`users.md`) has the name of the document instead.
fn name(link: Node<'_>, to: &str) {
    let page = to.strip_prefix("/docs/").map(|to| to.split('#').next().unwrap_or_default());
    let Some((entry, first)) = page.and_then(list::find).zip(link.first_child()) else { return };
    if let NodeValue::Text(text) = &mut first.data_mut().value
        && text.strip_suffix(".md").is_some()
        && entry.file.ends_with(&**text)
    {
        *text = entry.name.into();
    }
}

/// Where a link of a document leads on the site.
pub fn target(url: &str, file: &str) -> Option<String> {
    if ["https://", "http://", "mailto:", "#", "/"].iter().any(|start| url.starts_with(start)) {
        return Some(url.to_owned());
    }
    let (path, anchor) = url.split_once('#').map_or((url, None), |(path, anchor)| (path, Some(anchor)));
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "" | "." => {}
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let to = match (list::of_file(&path), path.strip_prefix("docs/pictures/")) {
        (Some(entry), _) => format!("/docs/{}", entry.page),
        (None, Some(picture)) => format!("/docs/pictures/{picture}"),
        (None, None) => return None,
    };
    Some(anchor.map_or_else(|| to.clone(), |anchor| format!("{to}#{anchor}")))
}

/// The text of a block, with what stands in code, and a space between its parts.
fn append_text(node: Node<'_>, to: &mut String) {
    for one in node.descendants() {
        match &one.data().value {
            NodeValue::Text(text) => to.push_str(text),
            NodeValue::Code(code) => to.push_str(&code.literal),
            NodeValue::CodeBlock(block) => to.push_str(&block.literal),
            NodeValue::SoftBreak
            | NodeValue::LineBreak
            | NodeValue::Paragraph
            | NodeValue::Item(_)
            | NodeValue::TableCell => to.push(' '),
            _ => {}
        }
    }
    to.push(' ');
}

fn draw(context: &mut Context<'_, '_, Pen>, node: Node<'_>, entering: bool) -> Result<ChildRendering, fmt::Error> {
    match &node.data().value {
        NodeValue::Heading(heading) => {
            let level = heading.level;
            if entering {
                let anchor = context.user.anchors.next().unwrap_or_default();
                context.cr()?;
                write!(context, "<h{level} id=\"{anchor}\">")?;
                if level > 1 {
                    let text = node.collect_text();
                    write!(context, "<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to: ")?;
                    context.escape(&text)?;
                    context.write_str("\">#</a>")?;
                }
            } else {
                writeln!(context, "</h{level}>")?;
            }
            Ok(ChildRendering::HTML)
        }
        NodeValue::CodeBlock(block) => {
            if entering {
                context.cr()?;
                let language = block.info.split_whitespace().next().unwrap_or("text");
                if language == "mermaid" {
                    draw_diagram(context, &block.literal)?;
                } else {
                    draw_code(context, language, &block.literal)?;
                }
            }
            Ok(ChildRendering::HTML)
        }
        NodeValue::Table(_) => {
            if entering {
                context.user.tables += 1;
                let (number, mut names) = (context.user.tables, vec![]);
                if let Some(head) = node.first_child() {
                    names.extend(
                        head.children().map(comrak::arena_tree::Node::collect_text).filter(|name| !name.is_empty()),
                    );
                }
                write!(context, "<section class=\"scroll\" tabindex=\"0\" aria-label=\"Table {number}: ")?;
                context.escape(&names.join(", "))?;
                context.write_str("\">")?;
            }
            let drawn = format_node_default(context, node, entering)?;
            if !entering {
                context.write_str("</section>\n")?;
            }
            Ok(drawn)
        }
        NodeValue::Image(link) => {
            if entering {
                context.write_str("<img loading=\"lazy\" src=\"")?;
                context.escape_href(&link.url)?;
                context.write_str("\" alt=\"")?;
                context.escape(&node.collect_text())?;
                context.write_str("\"")?;
                if let Some((width, height)) = link.url.rsplit('/').next().and_then(size_of) {
                    write!(context, " width=\"{width}\" height=\"{height}\"")?;
                }
                context.write_str(">")?;
            }
            Ok(ChildRendering::Skip)
        }
        _ => format_node_default(context, node, entering),
    }
}

fn draw_code(context: &mut Context<'_, '_, Pen>, language: &str, code: &str) -> fmt::Result {
    context.user.blocks += 1;
    let (number, copy) = (context.user.blocks, context.user.copy.clone());
    write!(context, "<div class=\"code-box\"><pre class=\"code\" id=\"code-{number}\" tabindex=\"0\" aria-label=\"")?;
    html::escape(context, language)?;
    context.write_str("\"><code>")?;
    html::escape(context, code)?;
    writeln!(
        context,
        "</code></pre><button class=\"icon-btn\" type=\"button\" data-copy=\"code-{number}\" aria-label=\"Copy code\" hidden>{copy}</button></div>"
    )
}

fn draw_diagram(context: &mut Context<'_, '_, Pen>, source: &str) -> fmt::Result {
    context.write_str("<ol class=\"diagram\">")?;
    for arrow in diagram::arrows(source) {
        context.write_str("<li><b>")?;
        context.escape(&arrow.from)?;
        context.write_str(
            "</b> <span class=\"arrow\" aria-hidden=\"true\">→</span><span class=\"sr\"> to </span> <b>",
        )?;
        context.escape(&arrow.to)?;
        context.write_str("</b>")?;
        if !arrow.label.is_empty() {
            context.write_str(" <span>")?;
            context.escape(&arrow.label)?;
            context.write_str("</span>")?;
        }
        context.write_str("</li>")?;
    }
    context.write_str("</ol>\n")
}
