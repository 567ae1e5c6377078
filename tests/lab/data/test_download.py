"""Downloads from a server on this machine, and archives that a user put into the data folder."""

import http.server
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pooch
import pytest
from tests.lab.data.made_up import (
    HUNDRED,
    ROOM,
    cifar_module,
    described,
    equal,
    hundred_files,
    make_tar,
    mnist_module,
    sha256,
    tiny,
)
from tests.lab.data.test_packages import debian_members

from mesu.lab.data import npz
from mesu.lab.data.download import Archive, Download, File
from mesu.lab.data.finding import load, where
from mesu.lab.data.progress import Progress, shown_by
from mesu.lab.data.published import DamagedData, Published


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder that is served on this machine, its address, and what was asked for."""
    monkeypatch.setenv("NO_PROXY", "*")
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *arguments):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


def served_file(server, name, content):
    folder, home, _ = server
    (folder / name).write_bytes(content)
    return File(f"{home}/{name}", len(content), sha256(content))


def test_download_gives_the_arrays_and_shows_how_far_it_is(server, capsys):
    files = [served_file(server, Path(name).name, content) for name, content in debian_members("x")]
    shown = []

    class Watch(Progress):
        def show(self, doing, done, total):
            shown.append((doing, done, total))

    logger, logged = pooch.get_logger(), []
    listener = logging.Handler()
    listener.emit = logged.append
    logger.addHandler(listener)
    level = logger.level
    with shown_by(Watch()):
        assert equal(load(tiny(Download(tuple(files), mnist_module.from_idx))))
    for file in files:
        assert (f"downloading {file.name}", 0, file.nbytes) in shown
        assert (f"downloading {file.name}", file.nbytes, file.nbytes) in shown
    logger.removeHandler(listener)
    assert f"a download from {server[1]}" in capsys.readouterr().err
    assert logged == []  # pooch's own lines are kept back
    assert logger.level == level


def test_download_that_is_not_the_known_file_is_refused(server):
    content = b"x" * 1000
    file = served_file(server, "a.bin", content)
    source = Download((file,), mnist_module.from_idx)

    def reason(file):
        with pytest.raises(FileNotFoundError) as raised:
            load(tiny(replace(source, files=(file,))))
        return str(raised.value)

    assert "a.bin: its SHA-256 is not the known one" in reason(replace(file, sha256="0" * 64))
    assert "b.bin: 404 Client Error" in reason(replace(file, url=file.url.replace("a.bin", "b.bin")))
    assert "a.bin: the server cannot be reached" in reason(replace(file, url="http://127.0.0.1:9/a.bin"))
    served_file(server, "a.bin", b"x" * 300_000)
    assert "a.bin: it is bigger than the 1000 bytes it should have" in reason(file)


def test_server_that_does_not_answer_is_given_up(monkeypatch):
    import socket

    from mesu.lab.data import download

    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = File(f"http://127.0.0.1:{silent.getsockname()[1]}/a.bin", 10, "0" * 64)
        with pytest.raises(FileNotFoundError, match=r"a.bin: no answer for 0.2 seconds"):
            load(tiny(Download((file,), mnist_module.from_idx)))


def hundred(server, tmp_path):
    archive = make_tar(tmp_path / "cifar-100-python.tar.gz", hundred_files())
    file = served_file(server, archive.name, archive.read_bytes())
    members = {"cifar-100-python/train": ROOM, "cifar-100-python/test": ROOM}
    source = Archive(file, members, cifar_module.from_hundred)
    contents = described(HUNDRED, hashed=False)
    return archive, Published("hundred", "Hundred", "", contents, (source,), archive=archive.name)


def test_archive_is_downloaded(server, tmp_path, cache):
    _, known = hundred(server, tmp_path)
    assert equal(load(known), HUNDRED)
    assert server[2] == ["/cifar-100-python.tar.gz"]
    assert equal(load(known), HUNDRED)
    assert len(server[2]) == 1
    assert where(known) == str(cache / "hundred.npz")


def test_archive_put_into_the_data_folder_comes_before_the_download(server, tmp_path, data_folder, cache):
    archive, known = hundred(server, tmp_path)
    copy = data_folder / archive.name
    copy.write_bytes(archive.read_bytes())
    assert equal(load(known), HUNDRED)
    assert server[2] == []
    (cache / "hundred.npz").unlink()
    copy.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(DamagedData, match=f"{copy} is not the archive it should be: .* SHA-256"):
        load(known)
    assert server[2] == []  # never a silent substitute


def test_arrays_that_cannot_be_checked_are_not_taken_from_the_data_folder(tmp_path, data_folder):
    source = Archive(File("http://127.0.0.1:9/h.tar.gz", 9, "0" * 64), {}, cifar_module.from_hundred)
    known = Published("hundred", "Hundred", "", described(HUNDRED, hashed=False), (source,), archive="h.tar.gz")
    npz.write(data_folder / "hundred.npz", HUNDRED)
    assert where(known) is None
    with pytest.raises(FileNotFoundError) as raised:
        load(known)
    assert f"MESU_DATA: {data_folder / 'h.tar.gz'} is not there" in str(raised.value)
    assert str(raised.value).endswith(
        "Put the original archive h.tar.gz into a folder and set MESU_DATA to that folder"
    )
