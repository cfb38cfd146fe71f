"""Writing to the small server of objects: whole, in parts as S3 and Google's stores take them, in blocks as Azure does."""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

Query = dict[str, list[str]]
BOUNDARY = "batchresponse_0"


class Uploads:
    """Parts of objects that nobody sees until their upload is completed."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects
        self._parts: dict[tuple[str, str], bytes] = {}
        self.completed = 0
        self._begun = 0

    def put(self, key: str, query: Query, body: bytes) -> None:
        """A whole object, a part of one, or Azure's list of the blocks that make one."""
        if query.get("comp") == ["blocklist"]:
            self._join(key, re.findall(r"<(?:Uncommitted|Latest|Committed)>([^<]+)</", body.decode()))
        elif "blockid" in query:
            self._parts[key, query["blockid"][0]] = body
        elif "partNumber" in query:
            self._parts[key, query["partNumber"][0]] = body
        else:
            self._objects[key] = body

    def post(self, key: str, query: Query, body: bytes) -> str:
        """Begins or completes an upload in parts, or deletes many objects; gives the answer's XML."""
        text = body.decode()
        if "uploads" in query:
            self._begun += 1
            named = f"<UploadId>u{self._begun}</UploadId>"
            return f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>"
        if "uploadId" in query:
            self._join(key, re.findall(r"<PartNumber>(\d+)</", text))
            return "<CompleteMultipartUploadResult><ETag>0</ETag></CompleteMultipartUploadResult>"
        bucket = key.strip("/")
        keys = [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]
        for each in keys:
            self._objects.pop(f"{bucket}/{each}", None)
        return f"<DeleteResult>{''.join(f'<Deleted><Key>{each}</Key></Deleted>' for each in keys)}</DeleteResult>"

    def batch(self, body: bytes) -> bytes:
        """Azure's answer to a batch of deletions."""
        paths = re.findall(r"DELETE (\S+) HTTP", body.decode())
        parts = []
        for number, path in enumerate(paths):
            for key in [key for key in self._objects if f"/{key}".endswith(unquote(urlsplit(path).path))]:
                del self._objects[key]
            head = f"--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            parts.append(f"{head}HTTP/1.1 202 Accepted\r\nx-ms-version: 2023-11-03\r\n\r\n")
        return f"{''.join(parts)}--{BOUNDARY}--".encode()

    def _join(self, key: str, names: list[str]) -> None:
        self._objects[key] = b"".join(self._parts.pop((key, name)) for name in names)
        self.completed += 1


def listing(objects: dict[str, bytes], path: str, query: Query) -> str:
    """The objects below a prefix, as the store that asks for them so tells them."""
    prefix = query.get("prefix", [""])[0]
    found = sorted(key for key in objects if key.startswith(f"{path}/{prefix}"))
    rows = [(key.removeprefix(f"{path}/"), len(objects[key])) for key in found]
    if "comp" in query:
        blobs = "".join(map(_azure_row, rows))
        return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker></NextMarker></EnumerationResults>"
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(map(_row, rows))}</ListBucketResult>"


def _row(row: tuple[str, int]) -> str:
    dated = "<LastModified>2026-11-30T00:00:00.000Z</LastModified>"
    return f'<Contents><Key>{row[0]}</Key><Size>{row[1]}</Size>{dated}<ETag>"0"</ETag></Contents>'


def _azure_row(row: tuple[str, int]) -> str:
    told: dict[str, Any] = {
        "Creation-Time": "Mon, 30 Nov 2026 00:00:00 GMT",
        "Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT",
        "Etag": "0",
        "Content-Length": row[1],
        "Content-Type": "application/octet-stream",
        "BlobType": "BlockBlob",
    }
    properties = "".join(f"<{name}>{value}</{name}>" for name, value in told.items())
    return f"<Blob><Name>{row[0]}</Name><Properties>{properties}</Properties></Blob>"
