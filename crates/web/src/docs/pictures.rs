//! The pictures of the documents.
use kernel::http::Document;
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "../../docs/pictures/"]
struct Pictures;

pub const PNG: &str = "image/png";

pub fn picture(name: &str) -> Option<Document> {
    Pictures::get(name).map(|file| Document::new(PNG, file.data.into_owned()))
}

/// Width and height, as the head of the file has them: a page keeps the place of a picture free while it loads.
pub fn size_of(name: &str) -> Option<(u32, u32)> {
    let file = Pictures::get(name)?;
    let number = |at: usize| file.data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some((number(16)?, number(20)?))
}
