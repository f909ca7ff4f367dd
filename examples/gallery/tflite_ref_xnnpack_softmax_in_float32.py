"""tflite_ref: xnnpack_softmax_in_float32

SOFTMAX is not delegated: the optimized kernel adds float32 exponentials, where the reference kernel works in
gemmlowp's fixed point (LiteRT 2.3)
Severity: design. Seen in litert xnnpack 2.3.0.
Case: softmax(x: [300, 4]) axis=1 channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.frombuffer(zlib.decompress(base64.b64decode(
    "eNoBsARP+6pc+LlcgMB/m0/KDkDDrNu2gGperTLSRVolntT5vK6Ii5Ivj/9fiXhePjh0gBqL6xtyzeXCP+2QUqmWx1Y/qu4igFHWFcBMeVpM0X15"
    "Zz7NgB5/TeAV8618TiruaDCDwyxWclhILZ88mQ+Z0suYw9xoKICAVth/wxmAGlrkNToEnX8XITSAcn+UX4Dvzd4R278GN2jEmsrpXOM/p38WZTkv"
    "lyv1iPSqJAnLzTNiqDFdVk/UsRa8yYJ/f+PqL598XbEdVlh5gKcPjsXRfwrZ851sdJ1JLf+Oy7l7vtByfiKb4vFSMrXTsAHptwrmaFECUIRIX0rc"
    "pH9TiZuAJMTxkrhdIuMiDQ2N39MuPdhXbvW/gMo5sGR7fw8BMPt/E6tIfwr170pqgLfgqHBwJYzxQ5XAef5EsMy6cl6BHt2Cjs10rded2mgJpQOR"
    "+j5xf1iA2HxWGsqhp6ZMRTVm2JnzbVZXLwkgk6jP6ZR4pNbsqB62XD0G8jW16j7e2muFs3TSBmYAZH9Md16df+XDQoEygPjtQFuGkuod0vnKq07R"
    "+OTprWZE0NoZf0loZiSqVlzV1jOWKmX5aaslzQ6IYJdghRd2civ2li1/ECncBOyQNC99XEOEOn9MOatpi94QP099lUnTisidOzgEJY8+dIIkNH9Z"
    "Uhg3RoDm6VoqLhA9/NK38kIW22bJMbLk+2AFx/oCMWg+Ps/s5rU4QoAvf+bquz2alosoqJoW6PcvqvGjlZyAwx+5tSJW8Et/azwcTn9/PJOmmRgs"
    "gAl7PnGEv7kglqNwzGk46Nig5SVJa9Rrqn8kzq5n4TbxjXuAwYN/I6Ur0oEZvSMD/HRTaI/phH1IsleOtpK9yVx1fS/6QbSAkIFT0rxXOwFEovBm"
    "j8ccM+rqAernMZuXmXe8uigvo/hAebjAIYloMVprTqAN8O+sgeudPIAqVK9IUix/ucsKdVs5KH+/gjKaWy1UnXXG4LdD8TzkZH1758CRob4BWj8A"
    "681/a8xoza/Aqb+KK0wbESlFaOB4obzk/Ef9LOyKtiMEf0u8Ojkex4ltFGCWP/MgYSUCSgCZj4DukvLdUahx4nB/DcqAIx2NsB+GelPwsaI7h7+F"
    "D2zs+18LHM1us5u9rRRIBfZOUuNo2l71bIA80TgWWLgJ7O+/5BhSmpDWDSMwkuWvHYWAMh1foKbKckntBUCfK7EGWcmCgB7l292js8xrI5mb0WnY"
    "n5kLb86A20JTWA+/Zz0kQ9RfxdF/JAujvVgi5LjqdYD9v0k6mjEBEhWX0+INWpNbSa2SCjl8qByHCYwiq7mb2bQ0QJyqw4MhLaFQQ2P8OnlD70XE"
    "DWpt1Ft5EU7goi5xdrX5DzBO0aC2aQlLHEvoW9VST+dnjHcnFrqgbyt7nfRMeVeM0+w93xnbqZOop5ve6YA+/VbXID7A0VGA79uoh3971rFN1M2i"
    "of3GQmzkAiVz0Gqx3H81BqiqlVhiD4r0rWKeclP2zTAVhCeiXID6Cb9ZM0A7y813FjrmfT1SEJINRvfBqGn1KL9sXrhrHafxIJbyRvOA1YeyEHIl"
    "+i0GoQhD0E3hCL+IgBJoVZq6u1IYT2FtLJQjlHSxBXT5VGQ="
)), np.int8).reshape([300, 4])
s_x, z_x = 0.03125, 0
s_y, z_y = 0.00390625, -128

# Right: what the arithmetic declared for tflite_ref gives, restated in integers.
expected = np.frombuffer(zlib.decompress(base64.b64decode(
    "eNqFmntMl2UUxy1XOm0utIu1LlOnLZu5cFHZui+dkkmJWitsVl5mzmpSaqC9vxf4cZeLKCCKCiggCZlMjYpCw8raqHRNmTY1XWSzIFdeiuoPv+ef"
    "z3Ym/5w9v+e8z3Oe85zL95yHyH+X/hb3ufSXq3FE9DPRAPQR8RvfSxqnabxe9HX9nqFxKJqDfWzdG8XfhfnDoumiw8SXKFoHfpNjkuYrNV4lGgW/"
    "yZUi/hD7dUDOMeLbp/Fa0dWiA7HOFIybRAtFF0KfJr/pbb7miyF3Cr7j93do/nvMRyGHnesp8du5s/HddtEJ4tulcQ34Rmr+OtGD+r3UuXezh3jx"
    "N2i8QXSEft8N+R/T740aF+A+n9f8FuwXAf9O0SvF36LxBdFmfHcA9zMDdr5R1OxjJfb5S3Q27JN+tgv7TsR9rwV/hehk8WVp3IXzrMF3C8Rv950H"
    "uY3vuGiM+O33pRhnipaIVomOFt8GnMv2fQ/yb4M8po9rNT8O9vol1rU4Yfbyhaj5US/4f4PcZkeNuG/zkx04r+n7Yc3/7dzPadFrxNeD/UyeJM3n"
    "O3Lxj3GgEPvfrfX2gM/i4h+iF0WX4F4D3Ffg7LtC3w0R3Yj7MT2ewD3YepsQZ5oce+F+lOOU6BD4QwA5bL17xNemcZFoA/whTnwWFyxvDoa8GvZp"
    "xX4fQ45W8O9x4mQ87C5EvDf+ZYijY+Hf65HHK5HvbNwDGsKO7Tw/it4Af7O8cyf8lPdk95IMHGF6PCZ6BudNh/3aeI7WyYT+LA9M03wF7jUPek6F"
    "/TO/BvCXi1gngniz0LHTacgfdY6ejC4X/yzIx3sMHD9dgfOfgr3/jrzA8+Q4frRVNEHfPYl8Sjkewnz2Zc5tNBXfVYsOB84KoA+zwwPAKU2wg0r4"
    "tcXddtFboPcVGIfQRwbwaBZwZBvsxvznFwc3D4SfGH3Hsde3oRfb/xN8b/q8Wvy1Gl+v8efQaxLWjSB+2/gF2H0Nzvk14lQAucwfntD8KuQ3xpUF"
    "wBmGfww/tjl22Obk4WzYtcWRf0T/BJ4MkE8HQE9Ga8Fvdvcg4tcs6K8C6xRjndegx/kYlyHf9MD+6D+2/jzIZf5TAJxchu/XIE7P1HeDoPcAdcbj"
    "qO+IWxc59lIAPRmufAD8byFfRRx7uoi4uAbx0tbbDPxqv+ejPrT77Na4E3LXQt8B7icfdZH5Uz38wuqfdfB76mk84qDd73TYbT30koG49CrwahT1"
    "UD1w1ijg/G1YvwR6tnt5Dv4dgC8Bdsnvk5z4GQI/RfEd8ajFuUexnun7iOhHovtR15qeXgY+y0J91xf44Cjw1rfwr0z44RnQfJwrE/f5JuIs67q5"
    "wJeJTt7JgZ+yr3EF4loX/OsE9JeDflAJ8PRY2OsPkH8Y9Bw6uDkd+ifee8U5r43f1fyv2GcA9o8gz0dR32bgnuIQL1MgRwbkuEvzm/B7M87Xibqg"
    "G/wNsLvz0G8h+nehg/eoH9Ytsfp9P+SbDjspcOJjiD7TveibFaMOKEVcftaRn3IzT3Q7fb904J2ZDv4vxz5z4X/WRzon+j7u2/oIH6JPsg5+Gw99"
    "tGPfOtTLEcSxXuhvqXMes+Ohmt8Lfa8ETqN9rMa4F/joFOZTsQ5xVj/N5yAOsq9pfZmTwOc7kH9X4ftc+NtXuB/GGdPbVZD7giPXQeTP73D+FuCB"
    "ashVCvw7Cna63Iln2YizT4uvBLi+0sEFufCDScBzIfT+M/Aa7eIN5PX7Ifce2F858vN65BGLH6VOnWlyn4Uf9YX+WBeNx71a/+Jm5Jcs7NcPuDDN"
    "6Y+EqIdanDwVOn7KPJGPPM3+/1TovRzrL3f8mLiqHnE2F3o1fP0vvhuMc5/GOabADhrxfStwxWjsb364E3gjhHzVwDvEh4b/n9H8MfTLI4h/3r2y"
    "71wGu/L6OhPxLlMAnDoVcjQ67yFWdxU58dT6WMfRV//G6X+F6MuVOfmV9lQP/UdRX6U6+ToEzjkMfMl3zvu0znbEy/1YL9bJd1Zvr7zM++IMxL80"
    "p6+4DPe8GvPznPxxEnbegz5FCLyWgfXnYF/rpx114nEUdTb7kSNwP52QYxH8KBvnjIKf/fw6+Hd/4Jstzjsa3xOHQo6tsIsqyFHj4J1zeEeMAL/F"
    "on8S5/Qf9qKv1N/pc5SinzUSuJrxYTH6uT3A2T2wiy6cuwPvOCHym+13m/a5VfSIg4d+QryIcfC89UNuR3zj+0Ex7HgD3jnW4b62Ak914J02F/4S"
    "cfock5E3NyPu8J1mOOq7m/BOz76S3f95J64kO/koD+eYAHzYjHifhnibh7qG9Srti3hqNuwtH+ubfQ1CPg4cfLQEcpj/tDt9O/OfD/D7IYyTYXe5"
    "yIfME7vRJz/rvEslou7YiHsbh3zY5OSPKrw7Fzl4dSniC/linHi+ALg+gnpwjNMHnAd52CcKnDrJ9H0IcazbeT+oQv1s+nkR7ylevyaAH9v/JaVc"
    "pm7cB7k/BU5NwDuaV78Sf5u8/wNBzwP9"
)), np.int64).reshape([300, 4])

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kCEPwkAMhd9gISMZy7KMZDgEAoEgAUcICEIQEwgkAoFEIBCQICYQ/Gt41+uNC4Eu37prX7v2CgC7dTkBEuQIESFmJOUJaBJ7AnNAQPrqp+pX"
    "oumIzlU3SE+J666p5ArtMSBDqTGPrRmTrfaFesdeIgm6VOfaL6njwIFcSPuH5qSaM3l4mkimsxpjV3InT9HYmUYBZL5A8pnchd0Usl2m/z5qj++a"
    "25+aJdl4e/r7Ai1qQ76NVQvNz53uU1PN3Hf1svYG4usWiQ=="
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"x": x}
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))
interpreter.invoke()
got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
