//! The one form that sends a file: fields, then the file, as the last part. Browsers say how long the whole body is, and so
//! how long the file is: it can go on as a stream, with its exact length, without being held anywhere.
use axum::{
    extract::{FromRequest, Request},
    http::header,
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    fault::{Code, Fault, MALFORMED, Result},
    http::{GenContext, Operation, OperationInput, Streamed, may_answer},
    ports::objects::Source,
};

/// More than the fields before a file and its name take.
const LONGEST_HEAD: usize = 64 * 1024;

const KIND: &str = "multipart/form-data";
const NOT_FORM: Code = Code::new(415, "unsupported_media_type", "The request body must be a form.");

/// The body of a form with a file, as it comes.
pub struct StreamedForm {
    /// Its `Content-Type`, which says where its parts end.
    pub kind: String,
    /// How long it says it is.
    pub announced: Option<u64>,
    pub bytes: Source<'static>,
}

impl FromRequest<Janua> for StreamedForm {
    type Rejection = Fault;

    async fn from_request(request: Request, janua: &Janua) -> Result<Self> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.filter(|kind| kind.to_ascii_lowercase().starts_with(KIND)).ok_or(NOT_FORM)?.to_owned();
        let body = Streamed::from_request(request, janua).await?;
        let announced = body.announced();
        // What is no form at all is refused before anybody is sent to the sign-in page with it.
        let bytes = from_first_part(&kind, body.into_source()).await?;
        Ok(Self { kind, announced, bytes })
    }
}

impl OperationInput for StreamedForm {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Streamed::operation_input(ctx, operation);
        may_answer(operation, &[NOT_FORM, MALFORMED]);
        let Some(body) = operation.request_body.as_mut().and_then(|body| body.as_item_mut()) else { return };
        let parts = schemars::json_schema!({ "type": "object", "additionalProperties": true });
        body.content = std::mem::take(&mut body.content)
            .into_iter()
            .map(|(_, mut media)| {
                if let Some(schema) = &mut media.schema {
                    schema.json_schema = parts.clone();
                }
                (KIND.to_owned(), media)
            })
            .collect();
    }
}

/// The same bytes, which begin with the first part of a form: its headers, which name it.
async fn from_first_part(kind: &str, mut bytes: Source<'static>) -> Result<Source<'static>> {
    let wrong = || MALFORMED.because("The body is no form of this boundary.");
    let opening = format!("--{}\r\n", boundary(kind).ok_or_else(wrong)?).into_bytes();
    let mut first = BytesMut::new();
    let end = loop {
        if let Some(end) = find(&first, b"\r\n\r\n") {
            break end;
        }
        if first.len() > LONGEST_HEAD {
            return Err(wrong());
        }
        first.extend_from_slice(&bytes.next().await.ok_or_else(wrong)??);
    };
    let headers = first[..end].strip_prefix(opening.as_slice()).ok_or_else(wrong)?;
    if !String::from_utf8_lossy(headers).to_ascii_lowercase().contains("content-disposition:") {
        return Err(wrong());
    }
    Ok(Box::pin(stream::once(async { Ok(first.freeze()) }).chain(bytes)))
}

/// A form with a file.
pub struct FileForm {
    pub fields: Vec<(String, String)>,
    pub file_name: String,
    pub content_type: String,
    pub length: u64,
    pub bytes: Source<'static>,
}

impl FileForm {
    /// Reads the fields, and finds the file. `total` is the length of the whole body.
    pub async fn read(content_type: &str, total: u64, mut body: Source<'static>) -> Result<Self> {
        let wrong = || MALFORMED.because("Not a form with one file at its end.");
        let boundary = boundary(content_type).ok_or_else(wrong)?;
        let mut head = BytesMut::new();
        let found = loop {
            if let Some(found) = file_part(&head, &boundary) {
                break found;
            }
            if head.len() > LONGEST_HEAD {
                return Err(wrong());
            }
            head.extend_from_slice(&body.next().await.ok_or_else(wrong)??);
        };
        let length = total.checked_sub((found.start + tail(&boundary).len()) as u64).ok_or_else(wrong)?;
        let first = head.split_off(found.start).freeze();
        let bytes = file_bytes(first, body, length, &boundary);
        Ok(Self { fields: found.fields, file_name: found.name, content_type: found.content_type, length, bytes })
    }

    pub fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

/// What ends a form.
fn tail(boundary: &str) -> Vec<u8> {
    format!("\r\n--{boundary}--\r\n").into_bytes()
}

fn boundary(content_type: &str) -> Option<String> {
    let rest = content_type.get(KIND.len()..)?;
    let boundary = rest.split(';').find_map(|part| part.trim().strip_prefix("boundary="))?.trim_matches('"');
    (1..=70).contains(&boundary.len()).then(|| boundary.to_owned())
}

struct FilePart {
    fields: Vec<(String, String)>,
    name: String,
    content_type: String,
    /// Where its bytes begin.
    start: usize,
}

/// The file's part, once its headers are there whole.
fn file_part(head: &[u8], boundary: &str) -> Option<FilePart> {
    let (opening, between) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}\r\n"));
    let mut at = head.starts_with(opening.as_bytes()).then_some(opening.len())?;
    let mut fields = vec![];
    loop {
        let end = at + find(&head[at..], b"\r\n\r\n")?;
        let headers = String::from_utf8_lossy(&head[at..end]).into_owned();
        let start = end + 4;
        let said = |name: &str| {
            let mut lines = headers.lines();
            lines.find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let disposition = said("content-disposition")?;
        let name = quoted(&disposition, "; name=\"")?;
        if let Some(file_name) = quoted(&disposition, "; filename=\"") {
            let content_type = said("content-type").unwrap_or_else(|| "application/octet-stream".to_owned());
            return Some(FilePart { fields, name: file_name, content_type, start });
        }
        let length = find(&head[start..], between.as_bytes())?;
        fields.push((name, String::from_utf8_lossy(&head[start..start + length]).into_owned()));
        at = start + length + between.len();
    }
}

/// Most places are ruled out by their first byte: files are long.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window.first() == wanted.first() && window == wanted)
}

/// Browsers write quotes and line breaks in names as `%22`, `%0D` and `%0A`.
fn quoted(disposition: &str, key: &str) -> Option<String> {
    let rest = disposition.split_once(key)?.1;
    let text = rest.split_once('"')?.0;
    Some(text.replace("%22", "\"").replace("%0D", "").replace("%0A", ""))
}

/// The bytes of the file. No part begins within them, and what follows is the end of the form, or the file was another one
/// than its length says.
fn file_bytes(first: Bytes, rest: Source<'static>, length: u64, boundary: &str) -> Source<'static> {
    struct State {
        bytes: Source<'static>,
        left: u64,
        seam: Seam,
        tail: Vec<u8>,
        end: BytesMut,
    }
    let bytes: Source<'static> = Box::pin(stream::once(async { Ok(first) }).chain(rest));
    let start = State { bytes, left: length, seam: Seam::new(boundary), tail: tail(boundary), end: BytesMut::new() };
    Box::pin(stream::try_unfold(start, |mut state| async move {
        loop {
            let Some(piece) = state.bytes.next().await else {
                let is_whole = state.left == 0 && state.end == state.tail;
                return if is_whole { Ok(None) } else { Err(broken()) };
            };
            let mut piece = piece?;
            let ours = usize::try_from(state.left).unwrap_or(usize::MAX).min(piece.len());
            let behind = piece.split_off(ours);
            state.left -= piece.len() as u64;
            state.end.extend_from_slice(&behind);
            if state.end.len() > state.tail.len() || state.seam.begins_a_part(&piece) {
                return Err(broken());
            }
            if !piece.is_empty() {
                return Ok(Some((piece, state)));
            }
        }
    }))
}

/// Looks for the beginning of a part in bytes that come in pieces.
struct Seam {
    wanted: Vec<u8>,
    /// The last bytes so far: one less than would be found.
    last: Vec<u8>,
}

impl Seam {
    /// The line break before the first byte is the one that ends the headers.
    fn new(boundary: &str) -> Self {
        Self { wanted: format!("\r\n--{boundary}").into_bytes(), last: b"\r\n".to_vec() }
    }

    fn begins_a_part(&mut self, piece: &[u8]) -> bool {
        let kept = self.wanted.len() - 1;
        self.last.extend_from_slice(&piece[..piece.len().min(kept)]);
        let is_found = find(&self.last, &self.wanted).is_some() || find(piece, &self.wanted).is_some();
        if piece.len() > kept {
            self.last = piece[piece.len() - kept..].to_vec();
        } else {
            self.last.drain(..self.last.len().saturating_sub(kept));
        }
        is_found
    }
}

fn broken() -> Fault {
    MALFORMED.because("The form does not end after its file.")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(body: &str, pieces: usize) -> Result<(String, String, Vec<u8>)> {
        let chunks: Vec<_> = body.as_bytes().chunks(pieces).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let source: Source<'static> = Box::pin(stream::iter(chunks));
        let form = FileForm::read("multipart/form-data; boundary=xyz", body.len() as u64, source).await?;
        let (name, visibility, length) = (form.file_name.clone(), form.field("visibility").to_owned(), form.length);
        let mut bytes = vec![];
        let mut source = form.bytes;
        while let Some(piece) = source.next().await {
            bytes.extend_from_slice(&piece?);
        }
        assert_eq!(bytes.len() as u64, length);
        Ok((name, visibility, bytes))
    }

    const FORM: &str = "--xyz\r\nContent-Disposition: form-data; name=\"visibility\"\r\n\r\npublic\r\n\
                        --xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a%22b.txt\"\r\n\
                        Content-Type: text/plain\r\n\r\nsome\r\n--xy words\r\n--xyz--\r\n";

    #[tokio::test]
    async fn a_file_comes_whole_however_it_is_cut() {
        for pieces in [1, 3, 7, 64, 10_000] {
            let (name, visibility, bytes) = read(FORM, pieces).await.unwrap();
            assert_eq!((name.as_str(), visibility.as_str()), ("a\"b.txt", "public"));
            assert_eq!(bytes, b"some\r\n--xy words");
        }
    }

    #[tokio::test]
    async fn a_form_with_more_after_its_file_is_refused() {
        let two = FORM.replace("--xyz--", "--xyz\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\nx\r\n--xyz--");
        for pieces in [1, 3, 7, 64, 10_000] {
            assert!(read(&two, pieces).await.is_err(), "in pieces of {pieces}");
        }
        let at_once = FORM.replace("some\r\n--xy words", "--xyz\r\n");
        assert!(read(&at_once, 1000).await.is_err(), "a part that begins where the file should");
        assert!(read("--xyz\r\n", 10).await.is_err());
        assert!(read("not a form", 10).await.is_err());
    }

    #[tokio::test]
    async fn what_does_not_begin_as_a_form_is_refused_at_once() {
        let begin = async |kind: &str, body: &'static str, pieces: usize| -> Result<Vec<u8>> {
            let chunks: Vec<_> = body.as_bytes().chunks(pieces).map(|piece| Ok(Bytes::from_static(piece))).collect();
            let mut source = from_first_part(kind, Box::pin(stream::iter(chunks))).await?;
            let mut all = vec![];
            while let Some(piece) = source.next().await {
                all.extend_from_slice(&piece?);
            }
            Ok(all)
        };
        for pieces in [1, 4, 10_000] {
            assert_eq!(begin("multipart/form-data; boundary=xyz", FORM, pieces).await.unwrap(), FORM.as_bytes());
        }
        for (kind, body) in [
            ("multipart/form-data", FORM),
            ("multipart/form-data; boundary=abc", FORM),
            ("multipart/form-data; boundary=xyz", ""),
            ("multipart/form-data; boundary=xyz", "--x"),
            ("multipart/form-data; boundary=xyz", "{}"),
            ("multipart/form-data; boundary=xyz", "--xyz\r\n17--xyz--\r\n"),
            ("multipart/form-data; boundary=xyz", "--xyz\r\nX: y\r\n\r\n17\r\n--xyz--\r\n"),
        ] {
            assert!(begin(kind, body, 64).await.is_err(), "{kind}: {body}");
        }
    }
}
