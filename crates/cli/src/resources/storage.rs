//! `janua storage`: the objects of an app. Files are read and written piece by piece, whatever their size.
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio::{
    fs::{self, File},
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use crate::{
    failure::{Failure, Result},
    output::{Column, bytes, text_at},
    resources::{Most, done, keys::Environment, list},
    server::{Extra, Server, body_of, encoded, is_id},
};

#[derive(clap::Subcommand)]
pub enum Storage {
    /// List the objects of an app, newest first
    Ls {
        /// Only those whose names begin with this, in the order of their names
        prefix: Option<String>,
        #[arg(long, value_enum, default_value = "live")]
        environment: Environment,
        #[command(flatten)]
        most: Most,
    },
    /// Save an object as a file
    Get {
        /// Its ID or its name
        object: String,
        /// Where to; `-` is the standard output [default: the last part of its name]
        file: Option<PathBuf>,
        #[arg(long, value_enum, default_value = "live")]
        environment: Environment,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Upload a file; the object belongs to you
    Put {
        file: PathBuf,
        /// Its name, such as photos/cat.png [default: the file's]
        #[arg(long)]
        name: Option<String>,
        /// Such as image/png [default: by the end of the file's name]
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Everybody can read it at its URL
        #[arg(long)]
        public: bool,
        #[arg(long, value_enum, default_value = "live")]
        environment: Environment,
    },
    /// Delete an object
    Rm {
        /// Its ID or its name
        object: String,
        #[arg(long, value_enum, default_value = "live")]
        environment: Environment,
    },
}

const OBJECT: &[Column] =
    &[("Object", "id"), ("Name", "name"), ("Type", "contentType"), ("Bytes", "size"), ("URL", "url")];
/// What is read from a file at once.
const PIECE: usize = 64 * 1024;

pub async fn run(server: &Server, command: &Storage) -> Result<()> {
    let path = format!("/apps/{}/storage", server.app().await?);
    match command {
        Storage::Ls { prefix, environment, most } => {
            let columns = [
                ("ID", "id"),
                ("Name", "name"),
                ("Bytes", "size"),
                ("Type", "contentType"),
                ("Status", "status"),
                ("Created", "createdAt"),
            ];
            let path = listed(&path, *environment, prefix.as_deref());
            list(server, &path, "objects", most, &columns, "No objects. Upload one with `janua storage put FILE`.")
                .await
        }
        Storage::Get { object, file, environment, force } => {
            let object = find(server, &path, *environment, object).await?;
            get(server, &path, &object, file.as_deref(), *force).await
        }
        Storage::Put { file, name, kind, public, environment } => {
            let name = match name {
                Some(name) => name.clone(),
                None => last_part(&file.to_string_lossy())?,
            };
            let guessed = || mime_guess::from_path(file).first_or_octet_stream().to_string();
            let kind = kind.clone().unwrap_or_else(guessed);
            let visibility = if *public { "public" } else { "private" };
            let query = format!("environment={}&visibility={visibility}&name={}", word(*environment), encoded(&name));
            put(server, &format!("{path}?{query}"), file, &kind).await
        }
        Storage::Rm { object, environment } => {
            let object = find(server, &path, *environment, object).await?;
            server.out.confirm(server.options.yes, &format!("Delete {}?", text_at(&object, "name")))?;
            let id = text_at(&object, "id");
            server.delete(&format!("{path}/{}", encoded(&id))).await?;
            done(server, &json!({ "id": id, "deleted": true }), "Deleted the object.", &[]);
            Ok(())
        }
    }
}

fn word(environment: Environment) -> &'static str {
    if matches!(environment, Environment::Live) { "live" } else { "test" }
}

fn listed(path: &str, environment: Environment, prefix: Option<&str>) -> String {
    let prefix = prefix.map(|prefix| format!("&prefix={}", encoded(prefix))).unwrap_or_default();
    format!("{path}?environment={}{prefix}", word(environment))
}

/// The object of an ID, or the only one of a name.
async fn find(server: &Server, path: &str, environment: Environment, wanted: &str) -> Result<Value> {
    if is_id(wanted) {
        return Ok(json!({ "id": wanted, "name": wanted }));
    }
    let path = listed(path, environment, Some(wanted));
    // Names that go on come after it.
    let rows = server.list(&path, "objects", 1000).await?;
    let found: Vec<Value> =
        rows.into_iter().filter(|row| row["name"] == wanted && row["status"] == "ready").collect();
    match <[Value; 1]>::try_from(found) {
        Ok([object]) => Ok(object),
        Err(found) if found.is_empty() => {
            Err(Failure::failed(format!("No object is called {wanted:?}.")).hint("`janua storage ls` shows them."))
        }
        Err(found) => {
            let ids = found.iter().map(|object| text_at(object, "id")).collect::<Vec<_>>().join("\n  ");
            Err(Failure::usage(format!("Several objects are called {wanted:?}. Give the ID of one:\n  {ids}")))
        }
    }
}

/// The last part of a name, as a file name: what others called an object leads to no other folder.
fn last_part(name: &str) -> Result<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if matches!(last, "" | "." | "..") || last.contains('\0') {
        return Err(Failure::usage(format!("{name:?} does not end with the name of a file. Name one.")));
    }
    Ok(last.to_owned())
}

async fn get(server: &Server, path: &str, object: &Value, to: Option<&Path>, force: bool) -> Result<()> {
    let id = text_at(object, "id");
    let asked = server.send(Method::GET, &format!("{path}/{}/content", encoded(&id)), &Extra::default()).await?;
    if !asked.status().is_success() {
        return body_of(asked).await.map(drop);
    }
    let lost = |_| Failure::failed("The connection was lost before the end of the object.");
    let mut answer = asked;
    if to == Some(Path::new("-")) {
        while let Some(piece) = answer.chunk().await.map_err(lost)? {
            io::stdout().write_all(&piece)?;
        }
        return Ok(io::stdout().flush()?);
    }
    let to = match to {
        Some(to) => to.to_owned(),
        None if object["contentType"].is_string() => PathBuf::from(last_part(&text_at(object, "name"))?),
        None => PathBuf::from(&id),
    };
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", to.display()));
    if !force && fs::try_exists(&to).await.map_err(failed)? {
        return Err(Failure::failed(format!("{} exists. Replace it with --force.", to.display())));
    }
    // Beside it first: a download that breaks off leaves no half of a file under its name.
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let aside = to.with_file_name(format!("{name}.{}.part", std::process::id()));
    let not_created = |error: io::Error| Failure::failed(format!("{}: {error}", aside.display()));
    let mut file = File::create_new(&aside).await.map_err(not_created)?;
    let length = async {
        let mut length = 0;
        while let Some(piece) = answer.chunk().await.map_err(lost)? {
            file.write_all(&piece).await.map_err(failed)?;
            length += piece.len() as u64;
        }
        file.sync_all().await.map_err(failed)?;
        fs::rename(&aside, &to).await.map_err(failed)?;
        Ok(length)
    };
    let length = match length.await {
        Ok(length) => length,
        Err(failure) => {
            let _gone = fs::remove_file(&aside).await;
            return Err(failure);
        }
    };
    let saved = json!({ "id": id, "file": to, "size": length });
    done(server, &saved, &format!("Saved {} as {}.", bytes(length), to.display()), &[]);
    Ok(())
}

async fn put(server: &Server, path: &str, file: &Path, kind: &str) -> Result<()> {
    let wrong = |error: io::Error| Failure::usage(format!("{}: {error}", file.display()));
    let opened = File::open(file).await.map_err(wrong)?;
    let about = opened.metadata().await.map_err(wrong)?;
    if !about.is_file() {
        return Err(Failure::usage(format!("{} is not a file.", file.display())));
    }
    let Some(token) = server.token().await? else {
        return Err(Failure::auth(format!("Not signed in at {}.", server.url)).hint(server.how_to_sign_in()));
    };
    let pieces = stream::try_unfold(opened, async |mut file| {
        let mut piece = vec![0; PIECE];
        let count = file.read(&mut piece).await?;
        piece.truncate(count);
        Ok::<_, io::Error>((count > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
    });
    let asked = server.upload(Method::POST, path).bearer_auth(token).header("Content-Type", kind);
    let asked = asked.header("Content-Length", about.len()).body(Body::wrap(StreamBody::new(Box::pin(pieces))));
    let object = body_of(asked.send().await.map_err(|error| server.unreachable(&error))?).await?;
    done(server, &object, &format!("Uploaded {}.", bytes(about.len())), OBJECT);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_may_take_longer_than_a_server_may_be_silent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::at_address(listener.local_addr().unwrap());
        let slow = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_mins(10)).await;
            let mut received = vec![];
            while !received.ends_with(b"words") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).await.unwrap();
                assert!(count > 0, "given up");
                received.extend_from_slice(&piece[..count]);
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("words.txt");
        std::fs::write(&file, "words").unwrap();
        let (sent, ()) = tokio::join!(put(&server, "/apps/a/storage", &file, "text/plain"), slow);
        assert!(sent.is_ok());
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        assert_eq!(last_part("photos/cat.png").unwrap(), "cat.png");
        assert_eq!(last_part("../../.bashrc").unwrap(), ".bashrc");
        assert_eq!(last_part("a\\b.txt").unwrap(), "b.txt");
        for refused in ["", "photos/", "..", "a/..", "a/.", "x\0"] {
            assert!(last_part(refused).is_err(), "{refused:?}");
        }
    }
}
