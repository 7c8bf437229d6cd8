from typing import final

@final
class Charset:
    name: str

def decode(data: bytes, charset: str) -> str: ...
def encode(text: str, charset: str) -> bytes: ...
