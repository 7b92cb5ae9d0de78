//! One request to the edge: host, route, path, file. It knows no sessions of the console and no routes of the API.
use std::{borrow::Cow, io, net::IpAddr, sync::Arc};

use axum::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{self, HeaderName},
    uri::Authority,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Either, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kernel::Janua;
use url::Url;

use crate::certificates;

use super::{
    Edge,
    cloudfront::{self, SITE_HEADER},
    enter, headers,
    hosts::{Looked, Route, RouteKind},
    manifest::{Form, Manifest, ServedFile},
    pieces::{PieceError, Pieces},
    resolve::{self, Found, Resolved},
    settings::{EdgeUrl, https_of, tls_port},
    site::{PreviewAccess, SiteAccess, SpaFallback},
};
use crate::ranges::{self, Part};

pub type EdgeBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, io::Error>>;
pub type EdgeResponse = Response<EdgeBody>;

/// The connection that a request came by.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// The name that the TLS handshake asked for; none without TLS.
    pub sni: Option<Arc<str>>,
    /// Who is at its other end, where that is known.
    pub peer: Option<IpAddr>,
}

const REVALIDATED: HeaderValue = HeaderValue::from_static("public, max-age=0, must-revalidate");
const KEPT_A_YEAR: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const NO_STORE: HeaderValue = HeaderValue::from_static("private, no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// The path below which every site has pages of the edge itself.
pub const OWN_PATHS: &str = "/_janua/";

/// Where a proxy in front asks whether a name is that of a site.
const ASK: &str = "/_janua/ask";

/// Answers one request.
pub async fn respond(janua: &Janua, edge: &Edge, connection: &Connection, request: &Request<()>) -> EdgeResponse {
    let host = match host_of(request) {
        Ok(host) => host,
        Err(status) => return plain(status, "Bad request: exactly one valid Host is needed.\n"),
    };
    if request.uri().path() == ASK {
        return may_serve(janua, edge, connection, request).await;
    }
    // While an order is open, ours wins over a file of the site.
    if let Some(token) = request.uri().path().strip_prefix(certificates::CHALLENGE_PATH)
        && let Some(answer) = certificates::challenge_answer(janua, &host, token).await
    {
        return Response::new(Either::Left(Full::new(answer.into())));
    }
    if connection.sni.as_deref().is_some_and(|name| !name.eq_ignore_ascii_case(&host)) || edge.is_console(&host) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "This host is not served here.\n");
    }
    let site = site_of_distribution(janua, &host, request);
    let host = site.as_deref().unwrap_or(&host);
    let route = match edge.hosts.look_up(janua, host).await {
        Looked::Found(route) if site.is_none() || route.kind == RouteKind::Production => route,
        Looked::Found(_) | Looked::Unknown => return plain(StatusCode::NOT_FOUND, "There is no site here.\n"),
        Looked::Away => return away("The site cannot be looked up at the moment.\n"),
    };
    // A distribution sees to TLS itself, and must not learn a redirect away from it.
    if site.is_none()
        && let Some(secure) = https_url(janua, connection, host, request).await
    {
        return redirect(308, &secure, false);
    }
    edge.traffic.measure(janua, &route, answer(janua, edge, connection, host, &route, request)).await
}

/// Whether a name is that of a site, for a proxy in front that orders certificates at a handshake: it asks before it does.
/// Nobody else is answered, so that names cannot be looked for here.
async fn may_serve(janua: &Janua, edge: &Edge, connection: &Connection, request: &Request<()>) -> EdgeResponse {
    let is_trusted = |peer: IpAddr| {
        peer.is_loopback() || janua.config.trusted_proxies.iter().any(|network| network.contains(&peer))
    };
    let nothing = || plain(StatusCode::NOT_FOUND, "There is no site here.\n");
    if !connection.peer.is_some_and(is_trusted) {
        return nothing();
    }
    let pairs = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let name = pairs.into_iter().find(|(name, _)| name == "domain").map(|(_, value)| value.to_ascii_lowercase());
    let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= 253) else { return nothing() };
    match edge.hosts.look_up(janua, name.trim_end_matches('.')).await {
        Looked::Found(_) => plain(StatusCode::OK, "yes\n"),
        Looked::Unknown => nothing(),
        Looked::Away => away("The site cannot be looked up at the moment.\n"),
    }
}

/// The host of the site that an external distribution asks for. It is believed on the host that distributions connect
/// to, which has no site, and where it says what `Host` says.
fn site_of_distribution(janua: &Janua, host: &str, request: &Request<()>) -> Option<String> {
    let mut named = request.headers().get_all(SITE_HEADER).iter();
    let (Some(site), None) = (named.next(), named.next()) else { return None };
    let site = site.to_str().ok().filter(|site| !site.is_empty() && site.len() <= 253)?.to_ascii_lowercase();
    let settings = janua.config.of::<cloudfront::Settings>();
    let is_origin = settings.cdn_origin.as_deref().is_some_and(|origin| origin.eq_ignore_ascii_case(host));
    (is_origin || site == host).then_some(site)
}

/// Where a request over plain http is sent: to https, if the edge listens there and the host has a certificate.
async fn https_url(janua: &Janua, connection: &Connection, host: &str, request: &Request<()>) -> Option<String> {
    let port = tls_port(&janua.config)?;
    if connection.sni.is_some() || !janua.own::<Arc<certificates::Keyring>>().has(janua, host).await {
        return None;
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    Some(format!("{}/{}", https_of(host, port), path.trim_start_matches('/')))
}

async fn answer(
    janua: &Janua,
    edge: &Edge,
    connection: &Connection,
    host: &str,
    route: &Arc<Route>,
    request: &Request<()>,
) -> EdgeResponse {
    if let RouteKind::Redirect(to) = &route.kind {
        let base = match tls_port(&janua.config).filter(|_| connection.sni.is_some()) {
            Some(port) => https_of(to, port),
            None => EdgeUrl::of(&janua.config).url_of(to),
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        // Built from the host that the owner named; the path begins with one slash.
        return redirect(308, &format!("{base}/{}", path.trim_start_matches('/')), false);
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Sites answer GET and HEAD.\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let is_preview = matches!(route.kind, RouteKind::Preview(_));
    let for_members = match route.kind {
        RouteKind::Preview(_) => match route.settings.preview_access {
            PreviewAccess::Off => return plain(StatusCode::NOT_FOUND, "Previews of this site are switched off.\n"),
            access => access == PreviewAccess::Members || route.settings.access == SiteAccess::Members,
        },
        _ => route.settings.access == SiteAccess::Members,
    };
    if request.uri().path().starts_with(OWN_PATHS) {
        return enter::own_page(janua, host, route, request).await;
    }
    if for_members && let Some(refusal) = enter::refuse_strangers(janua, host, route, request).await {
        return refusal;
    }
    let mut response = serve(janua, edge, route, request).await.unwrap_or_else(|error| {
        tracing::error!(%error, host, path = request.uri().path(), "cannot read a file of a site");
        match error {
            PieceError::Store(_) => away("The file cannot be read at the moment.\n"),
            PieceError::Missing(_) | PieceError::Corrupt(_) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, "The file is damaged.\n")
            }
        }
    });
    if is_preview || for_members {
        headers::forget_cache_rules(response.headers_mut());
        response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
        response.headers_mut().insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    }
    response
}

async fn serve(
    janua: &Janua,
    edge: &Edge,
    route: &Arc<Route>,
    request: &Request<()>,
) -> Result<EdgeResponse, PieceError> {
    let Some(live) = &route.live else {
        return Ok(plain(StatusCode::NOT_FOUND, "Nothing is deployed here yet.\n"));
    };
    let manifest = edge.pieces.manifest(janua, live).await?;
    let Some(path) = resolve::decode(request.uri().path()) else {
        return Ok(plain(StatusCode::NOT_FOUND, "Not found.\n"));
    };
    let found = match resolve::resolve(&manifest, &path, request.uri().query()) {
        Resolved::File(found) => found,
        Resolved::Redirect { status, to } => return Ok(redirect(status, &to, matches!(status, 301 | 308))),
        Resolved::Missing => {
            if let Some(response) = serve_replaced(janua, edge, route, request, &path).await? {
                return Ok(response);
            }
            match missing(route, &manifest, request, &path) {
                Some(found) => found,
                None => return Ok(plain(StatusCode::NOT_FOUND, "Not found.\n")),
            }
        }
    };
    file(janua, edge, &manifest, &found, &path, request).await
}

/// What stands in for a path that the deployment does not have.
fn missing<'a>(route: &Route, manifest: &'a Manifest, request: &Request<()>, path: &str) -> Option<Found<'a>> {
    let is_spa = match route.settings.spa_fallback {
        SpaFallback::On => true,
        SpaFallback::Off => false,
        SpaFallback::Auto => manifest.get("404.html").is_none(),
    };
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_page = is_spa && request.method() == Method::GET && resolve::is_navigation(path, accept);
    is_page.then(|| resolve::spa(manifest)).flatten().or_else(|| resolve::not_found_page(manifest, path))
}

/// A file of a deployment that was live until lately: pages that are still open in browsers ask for it.
async fn serve_replaced(
    janua: &Janua,
    edge: &Edge,
    route: &Arc<Route>,
    request: &Request<()>,
    path: &str,
) -> Result<Option<EdgeResponse>, PieceError> {
    for (live, until) in &route.grace {
        if janua.clock.now() >= *until {
            continue;
        }
        let manifest = edge.pieces.manifest(janua, live).await?;
        if let Some(old) = manifest.get(path).filter(|file| !file.is_html) {
            let found = Found { file: old, status: 200, is_fallback: false };
            return file(janua, edge, &manifest, &found, path, request).await.map(Some);
        }
    }
    Ok(None)
}

async fn file(
    janua: &Janua,
    edge: &Edge,
    manifest: &Arc<Manifest>,
    found: &Found<'_>,
    path: &str,
    request: &Request<()>,
) -> Result<EdgeResponse, PieceError> {
    let (file, sent) = (found.file, request.headers());
    // A range is one of the plain bytes, so it is never mixed with a compressed form.
    let range = sent.get(header::RANGE).filter(|_| found.status == 200 && request.method() == Method::GET);
    let (form, encoding) = if range.is_some() { (&file.plain, None) } else { choose(file, sent) };
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::from_u16(found.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.reserve(8);
    headers.insert(header::CONTENT_TYPE, file.content_type.clone());
    headers.insert(header::ETAG, form.etag.clone());
    let cache = match (found.is_fallback, file.is_hashed) {
        (true, _) => NO_CACHE,
        (_, true) => KEPT_A_YEAR,
        (_, false) => REVALIDATED,
    };
    headers.insert(header::CACHE_CONTROL, cache);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if !manifest.headers.is_empty() {
        manifest.headers.apply(path, headers, !found.is_fallback);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    if found.status == 200 && is_same(sent, &form.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        headers_of_nothing(response.headers_mut());
        return Ok(response);
    }
    let headers = response.headers_mut();
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    } else if found.status == 200 {
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    let mut bytes = 0..form.size;
    if let Some(range) = range.filter(|_| may_be_part(sent, &form.etag)) {
        match ranges::parse(range.to_str().unwrap_or_default(), form.size) {
            Part::Whole => {}
            Part::Bytes(part) => {
                let says = format!("bytes {}-{}/{}", part.start, part.end - 1, form.size);
                headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(says).unwrap_or(NO_CACHE));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                bytes = part;
            }
            Part::Outside => {
                let mut refusal = plain(StatusCode::RANGE_NOT_SATISFIABLE, "");
                let says = HeaderValue::try_from(format!("bytes */{}", form.size)).unwrap_or(NO_CACHE);
                refusal.headers_mut().insert(header::CONTENT_RANGE, says);
                return Ok(refusal);
            }
        }
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, (bytes.end - bytes.start).into());
    if request.method() == Method::GET {
        *response.body_mut() = body(janua, &edge.pieces, manifest, form, bytes).await?;
    }
    Ok(response)
}

fn headers_of_nothing(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_TYPE);
}

/// The smallest form that the client understands.
fn choose<'a>(file: &'a ServedFile, sent: &HeaderMap) -> (&'a Form, Option<&'static str>) {
    if file.br.is_none() && file.gzip.is_none() {
        return (&file.plain, None);
    }
    let accepts = |wanted: &str| {
        sent.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
            value.split(',').any(|coding| {
                let mut parts = coding.split(';').map(str::trim);
                let is_wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
                let mut weights = parts.filter_map(|part| part.split_once('='));
                is_wanted
                    && !weights.any(|(name, weight)| {
                        name.trim().eq_ignore_ascii_case("q") && weight.trim().parse() == Ok(0.0_f32)
                    })
            })
        })
    };
    match (&file.br, &file.gzip) {
        (Some(form), _) if accepts("br") => (form, Some("br")),
        (_, Some(form)) if accepts("gzip") => (form, Some("gzip")),
        _ => (&file.plain, None),
    }
}

/// Whether the client has just this form.
fn is_same(sent: &HeaderMap, etag: &HeaderValue) -> bool {
    let Some(known) = sent.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()) else { return false };
    let etag = etag.as_bytes();
    known.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one).as_bytes() == etag)
}

fn may_be_part(sent: &HeaderMap, etag: &HeaderValue) -> bool {
    sent.get(header::IF_RANGE).is_none_or(|known| known == etag)
}

fn empty() -> EdgeBody {
    Either::Left(Full::default())
}

/// Some bytes of a form. The first piece is read before the answer begins, so that a damaged file is an error and not a
/// broken answer.
async fn body(
    janua: &Janua,
    pieces: &Pieces,
    manifest: &Arc<Manifest>,
    form: &Form,
    bytes: std::ops::Range<u64>,
) -> Result<EdgeBody, PieceError> {
    let mut wanted = vec![];
    let mut at = 0;
    for piece in &form.pieces {
        let (start, end) = (at, at + u64::from(piece.size));
        at = end;
        let (from, to) = (bytes.start.max(start), bytes.end.min(end));
        if from < to {
            let within = |place: u64| usize::try_from(place - start).unwrap_or_default();
            wanted.push((*piece, within(from)..within(to)));
        }
    }
    let Some((first, part)) = wanted.first().cloned() else { return Ok(empty()) };
    let first = pieces.read(janua, manifest, &first).await?.slice(part);
    if wanted.len() == 1 {
        return Ok(Either::Left(Full::new(first)));
    }
    let (janua, manifest) = (janua.clone(), manifest.clone());
    let rest = stream::iter(wanted.into_iter().skip(1)).then(move |(piece, part)| {
        let (janua, manifest) = (janua.clone(), manifest.clone());
        async move {
            let edge = janua.own::<Arc<Edge>>();
            let bytes = edge.pieces.read(&janua, &manifest, &piece).await.map_err(io::Error::other)?;
            Ok(Frame::data(bytes.slice(part)))
        }
    });
    let all = stream::once(async move { Ok(Frame::data(first)) }).chain(rest);
    Ok(Either::Right(StreamBody::new(all).boxed_unsync()))
}

/// The host that a request is for: lower case, without port and trailing dot.
pub fn host_of<B>(request: &Request<B>) -> Result<Cow<'_, str>, StatusCode> {
    let mut named = request.headers().get_all(header::HOST).iter();
    let header = named.next();
    if named.next().is_some() {
        return Err(StatusCode::BAD_REQUEST);
    }
    let header = header.map(|host| host.to_str().map_err(|_| StatusCode::BAD_REQUEST)).transpose()?;
    let target = request.uri().authority().map(Authority::as_str);
    let host = match (target, header) {
        (Some(target), Some(header)) if !target.eq_ignore_ascii_case(header) => return Err(StatusCode::BAD_REQUEST),
        (Some(target), _) if request.version() >= Version::HTTP_2 || header.is_some() => target,
        (None, Some(header)) => header,
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) => return Err(StatusCode::BAD_REQUEST),
        None => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_name = !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if !is_name {
        return Err(StatusCode::BAD_REQUEST);
    }
    let is_lower = !name.bytes().any(|b| b.is_ascii_uppercase());
    Ok(if is_lower { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) })
}

pub fn plain(status: StatusCode, text: &'static str) -> EdgeResponse {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

fn away(text: &'static str) -> EdgeResponse {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

pub fn redirect(status: u16, to: &str, may_cache: bool) -> EdgeResponse {
    let Ok(location) = HeaderValue::try_from(to) else { return plain(StatusCode::NOT_FOUND, "Not found.\n") };
    let mut response = plain(StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND), "");
    response.headers_mut().insert(header::LOCATION, location);
    if may_cache {
        response.headers_mut().insert(header::CACHE_CONTROL, REVALIDATED);
    }
    response
}

/// The host of the console, which the edge does not answer for.
pub fn console_host(janua: &Janua) -> String {
    Url::parse(&janua.config.base_url())
        .ok()
        .and_then(|url| url.host_str().map(str::to_lowercase))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(request: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
        let mut built = Request::builder().uri(request);
        for (name, value) in headers {
            built = built.header(*name, *value);
        }
        host_of(&built.body(()).unwrap()).map(Cow::into_owned).map_err(|status| status.as_u16())
    }

    #[test]
    fn w08_a_host_has_one_normal_form() {
        for name in
            ["shop.localhost", "shop.localhost:8081", "SHOP.Localhost", "shop.localhost.", "shop.localhost.:80"]
        {
            assert_eq!(host("/", &[("host", name)]).as_deref(), Ok("shop.localhost"), "{name}");
        }
        assert_eq!(host("http://shop.localhost/", &[("host", "shop.localhost")]).as_deref(), Ok("shop.localhost"));
        for headers in [
            &[][..],
            &[("host", "a.localhost"), ("host", "b.localhost")],
            &[("host", "")],
            &[("host", "a b")],
            &[("host", "a@b")],
            &[("host", "a:b")],
            &[("host", "a/b")],
            &[("host", "[::1]:80")],
        ] {
            assert_eq!(host("/", headers), Err(400), "{headers:?}");
        }
        assert_eq!(host("http://other.localhost/", &[("host", "shop.localhost")]), Err(400));
        let forwarded = [("host", "a.localhost"), ("x-forwarded-host", "evil.test"), ("forwarded", "host=evil.test")];
        assert_eq!(host("/", &forwarded).as_deref(), Ok("a.localhost"), "W09");
    }
}
