"""The filters that every request passes before its handler, as aiohttp middlewares; `apiserver.server` orders them."""
