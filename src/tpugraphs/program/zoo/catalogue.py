"""What is in the zoo, as a table: variants of families, their modes, batch sizes and tiers, and what was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIERS = ("small", "medium", "large")


@dataclass(frozen=True, slots=True)
class Published:
    """What others counted, for one input."""

    parameters: float
    multiply_adds: float | None
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What has to be set to count the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One variant of a family."""

    variant: str
    family: str
    module: str
    """The module of this package that makes it."""
    source: str
    """Where its definition comes from."""
    options: Mapping[str, Any]
    programs: tuple[tuple[str, int, str], ...]
    """Mode, batch size and tier of each."""
    published: Published | None


def _entry(
    variant: str,
    family: str,
    module: str,
    source: str,
    /,
    *,
    small: str = "",
    medium: str = "",
    large: str = "",
    published: Published | None = None,
    **options: Any,
) -> Entry:
    """Programs are named by tier, as in `inference/b1 train/b8`."""
    programs = []
    for tier, names in zip(TIERS, (small, medium, large), strict=True):
        for name in names.split():
            mode, _, batch = name.partition("/b")
            programs.append((mode, int(batch), tier))
    return Entry(variant, family, module, source, options, tuple(programs), published)


def _keras(variant: str, family: str, model: str, **more: Any) -> Entry:
    return _entry(variant, family, "keras_models", "keras.applications", model=model, **more)


_DLRM, _DCN = "arXiv 1906.00091", "arXiv 2008.13535"
_WAVENET, _DDPM = "arXiv 1609.03499", "arXiv 2006.11239"
_GCN, _SAGE, _MPNN = "arXiv 1609.02907", "arXiv 1706.02216", "arXiv 1704.01212"
_POINTNET, _VAE, _DCGAN = "arXiv 1612.00593", "arXiv 1312.6114", "arXiv 1511.06434"

_TINY_TABLES = {"rows": (100,) * 8, "bottom": (64,), "top": (64,), "dimension": 16}
_OTHERS: tuple[Entry, ...] = (
    _entry(
        "dlrm-tiny", "DLRM", "recommender", _DLRM,
        small="inference/b32 train/b32", **_TINY_TABLES, bag=4,
    ),
    _entry(
        "dlrm-criteo", "DLRM", "recommender", _DLRM,
        small="inference/b1 inference/b128 train/b128",
    ),
    _entry(
        "dlrm-terabyte", "DLRM", "recommender", _DLRM,
        small="inference/b128", medium="train/b128", dimension=64, bottom=(512, 256), top=(512, 512, 256),
    ),
    _entry(
        "dcn-tiny", "DCN", "recommender", _DCN,
        small="inference/b32 train/b32", **_TINY_TABLES, interaction="dcn", cross_layers=2,
    ),
    _entry(
        "dcn-criteo", "DCN", "recommender", _DCN,
        small="inference/b1 inference/b128 train/b128", interaction="dcn",
    ),
    _entry(
        "wavenet-tiny", "WaveNet", "wavenet", _WAVENET,
        small="inference/b1 train/b1 decode/b1",
        samples=256, blocks=1, layers=6, residual=16, gate=16, skip=32, classes=64,
    ),
    _entry(
        "wavenet-small", "WaveNet", "wavenet", _WAVENET,
        small="inference/b1 train/b1 decode/b1", samples=512, blocks=2, layers=6, residual=32, gate=32, skip=64,
    ),
    _entry(
        "wavenet", "WaveNet", "wavenet", _WAVENET,
        small="inference/b1 decode/b1 decode/b16", medium="train/b1",
    ),
    _entry(
        "wavenet-deep", "WaveNet", "wavenet", _WAVENET,
        small="decode/b1", medium="inference/b1 train/b1",
        samples=4096, blocks=5, layers=10, residual=32, gate=32, skip=512,
    ),
    _entry(
        "ddpm-tiny", "Diffusion", "diffusion", _DDPM,
        small="inference/b1 train/b1 sample/b1",
        image=16, base=16, multipliers=(1, 2), blocks=1, attention_at=(8,),
    ),
    _entry("ddpm-small", "Diffusion", "diffusion", _DDPM, small="inference/b1", large="train/b1", base=32),
    _entry(
        "ddpm-cifar10", "Diffusion", "diffusion", _DDPM,
        medium="inference/b1 sample/b1", large="train/b1",
        published=Published(35_746_307, None, "google/ddpm-cifar10-32"),
    ),
    _entry("gcn-cora", "Graph network", "graph_network", _GCN, small="inference/b1 train/b1"),
    _entry(
        "gcn-arxiv", "Graph network", "graph_network", _GCN, medium="inference/b1 train/b1",
        nodes=169_343, edges=1_166_243, features=128, width=256, layers=3, outputs=40, normalised=True,
        published=Published(110_120, None, "ogbn-arxiv leaderboard"),
    ),
    _entry(
        "sage-tiny", "Graph network", "graph_network", _SAGE,
        small="inference/b1 train/b1", network="sage", nodes=200, edges=800, features=32,
    ),
    _entry(
        "mpnn-tiny", "Message passing", "graph_network", _MPNN,
        small="inference/b4 train/b4",
        network="mpnn", nodes=9, edges=20, features=13, width=16, edge_width=32, layers=2, outputs=1,
    ),
    _entry(
        "mpnn-qm9", "Message passing", "graph_network", _MPNN,
        small="inference/b20", medium="train/b20",
        network="mpnn", nodes=18, edges=38, features=13, width=64, layers=3, outputs=12,
    ),
    _entry(
        "flow-128", "Physics", "physics", "finite differences",
        small="inference/b1 train/b1", size=128, steps=2, iterations=40,
    ),
    _entry("bodies-128", "Physics", "physics", "all pairs", small="inference/b1 train/b1", system="bodies", size=128),
    _entry(
        "bodies-512", "Physics", "physics", "all pairs",
        small="inference/b1", medium="train/b1", system="bodies", size=512, steps=4,
    ),
    _entry(
        "waves-1024", "Physics", "physics", "spectral",
        small="inference/b16 train/b16", system="spectral", size=1024, steps=8,
    ),
    _entry(
        "pointnet-quarter", "PointNet", "point_cloud", _POINTNET,
        small="inference/b1 train/b4", points=512, shrink=4,
    ),
    _entry("pointnet", "PointNet", "point_cloud", _POINTNET, small="inference/b1", medium="inference/b8 train/b8"),
    _entry("vae-mnist", "VAE", "autoencoder", _VAE, small="inference/b1 inference/b32", medium="train/b32"),
    _entry(
        "vae-64", "VAE", "autoencoder", _VAE,
        small="inference/b1", medium="train/b8",
        image=64, colours=3, channels=(32, 64, 128, 256), hidden=256, latent=32, kernel=4,
    ),
    _entry(
        "dcgan-64", "DCGAN", "autoencoder", _DCGAN,
        small="inference/b1 inference/b16",
        network="dcgan", image=64, colours=3, channels=(64, 128, 256, 512), latent=100, kernel=4,
        published=Published(3_576_704, None, "PyTorch's DCGAN example"),
    ),
)  # fmt: skip

_BERT, _ALBERT, _ELECTRA, _TALKING = "arXiv 1810.04805", "arXiv 1909.11942", "arXiv 2003.10555", "arXiv 2003.02436"
_GPT2, _VASWANI, _T5, _VIT = "Radford et al. 2019", "arXiv 1706.03762", "arXiv 1910.10683", "arXiv 2010.11929"
_MIXER, _SWITCH, _CONFORMER, _GNMT = "arXiv 2105.01601", "arXiv 2101.03961", "arXiv 2005.08100", "arXiv 1609.08144"
_TINYBERT = "Jiao et al. 2019 (arXiv 1909.10351), 22.5 GFLOPs"


def _transformer(variant: str, module: str, source: str, /, **more: Any) -> Entry:
    return _entry(variant, "Transformer", module, source, **more)


_TRANSFORMERS: tuple[Entry, ...] = (
    _transformer(
        "transformer", "encoders", _BERT,
        small="inference/b1 inference/b4 train/b1", layers=4, width=384, heads=6, vocabulary=1000,
    ),
    _transformer(
        "bert-tiny", "encoders", _BERT, small="inference/b1 inference/b8 train/b1 train/b8",
        layers=2, width=128, heads=2, published=Published(4_385_920, None, "google/bert_uncased_L-2_H-128_A-2"),
    ),
    _transformer(
        "bert-mini", "encoders", _BERT, small="inference/b1 train/b1", medium="inference/b8 train/b8",
        layers=4, width=256, heads=4, published=Published(11_170_560, None, "google/bert_uncased_L-4_H-256_A-4"),
    ),
    _transformer(
        "bert-small", "encoders", _BERT, small="inference/b1", medium="inference/b8 train/b1",
        layers=4, width=512, heads=8, published=Published(28_763_648, None, "google/bert_uncased_L-4_H-512_A-8"),
    ),
    _transformer(
        "bert-base", "encoders", _BERT, medium="inference/b1 inference/b8 train/b1 train/b8",
        published=Published(109_482_240, 22.5e9 / 2, _TINYBERT),
    ),
    _transformer(
        "bert-large", "encoders", _BERT, medium="inference/b1", large="train/b1 train/b8",
        layers=24, width=1024, heads=16, published=Published(335_141_888, None, "google-bert/bert-large-uncased"),
    ),
    _transformer(
        "albert-base", "encoders", _ALBERT, medium="inference/b1 train/b1",
        model="albert", published=Published(11_683_584, None, "albert/albert-base-v2"),
    ),
    _transformer(
        "electra-small", "encoders", _ELECTRA, small="inference/b1", medium="train/b1",
        model="electra", width=256, heads=4, embedding=128, pooler=False,
        published=Published(13_548_800, None, "google/electra-small-discriminator"),
    ),
    _transformer(
        "talking-heads-base", "encoders", _TALKING, medium="inference/b1", large="train/b1", model="talking-heads",
    ),
    _transformer(
        "gpt-tiny", "decoder", _GPT2, small="inference/b1 decode/b1 decode/b8 train/b1",
        layers=4, width=256, heads=4, vocabulary=8000, context=256, tokens=64,
    ),
    _transformer(
        "gpt2", "decoder", _GPT2, medium="inference/b1 decode/b1 train/b1",
        published=Published(124_439_808, None, "openai-community/gpt2"),
    ),
    _transformer("gpt2-medium", "decoder", _GPT2, large="train/b1", layers=24, width=1024, heads=16),
    _transformer(
        "nmt-tiny", "encoder_decoder", _VASWANI, small="inference/b1 train/b1",
        layers=2, width=128, heads=4, intermediate=512, vocabulary=4000, source=32, target=32,
    ),
    _transformer("nmt-base", "encoder_decoder", _VASWANI, medium="inference/b1 inference/b8", large="train/b1"),
    _transformer(
        "t5-small", "encoder_decoder", _T5, medium="inference/b1 train/b1",
        style="t5", published=Published(60_506_624, None, "google-t5/t5-small"),
    ),
    _transformer(
        "vit-tiny", "vit", _VIT, small="inference/b1", medium="inference/b8 train/b1",
        layers=12, width=192, heads=3, published=Published(5_717_416, None, "timm/vit_tiny_patch16_224"),
    ),
    _transformer(
        "vit-base", "vit", _VIT, medium="inference/b1 train/b1",
        published=Published(86_567_656, 17.564e9, "torchvision vit_b_16"),
    ),
)  # fmt: skip

_SEQUENCES: tuple[Entry, ...] = (
    _entry(
        "mixer-tiny", "MLP-Mixer", "mixer", _MIXER, small="inference/b1 train/b1",
        image=64, patch=8, layers=4, width=128, classes=100,
    ),
    _entry(
        "mixer-small", "MLP-Mixer", "mixer", _MIXER, medium="inference/b1 train/b1",
        layers=8, width=512, published=Published(18_528_264, None, "timm/mixer_s16_224"),
    ),
    _entry(
        "mixer-base", "MLP-Mixer", "mixer", _MIXER, medium="inference/b1 train/b1",
        published=Published(59_880_472, None, "timm/mixer_b16_224"),
    ),
    _entry(
        "switch-tiny", "Mixture of experts", "experts", _SWITCH, small="inference/b1 train/b1",
        layers=2, width=128, heads=4, experts=4, vocabulary=4000, tokens=64,
    ),
    _entry("switch-base", "Mixture of experts", "experts", _SWITCH, medium="inference/b1 train/b1"),
    _entry(
        "conformer-tiny", "Conformer", "conformer", _CONFORMER, small="inference/b1 train/b1",
        layers=2, width=96, frames=200, vocabulary=256,
    ),
    _entry("conformer-small", "Conformer", "conformer", _CONFORMER, small="inference/b1", large="train/b1"),
    _entry(
        "gnmt-tiny", "LSTM translation", "lstm_translation", _GNMT, small="inference/b1 train/b1",
        layers=2, width=128, vocabulary=4000, source=16, target=16,
    ),
    _entry(
        "gnmt-small", "LSTM translation", "lstm_translation", _GNMT,
        small="inference/b1", medium="inference/b8 train/b1", layers=4, width=256, vocabulary=8000,
    ),
    _entry("gnmt", "LSTM translation", "lstm_translation", _GNMT, medium="inference/b1 train/b1"),
)  # fmt: skip

_TORCHVISION = "torchvision"
_THINET = "Luo et al. 2017 (ThiNet), 7.72 GFLOPs"
_HE = "He et al. 2015 (arXiv 1512.03385)"
_MASKRCNN, _RETINANET = "arXiv 1703.06870", "arXiv 1708.02002"
_UNET, _UNET3D = "arXiv 1505.04597", "arXiv 1606.06650"

_IMAGES: tuple[Entry, ...] = (
    _keras(
        "resnet50", "ResNet", "ResNet50", medium="inference/b1 inference/b8 train/b1 train/b8",
        published=Published(25_557_032, 3.86e9, _THINET),
    ),
    _keras("resnet50-64", "ResNet", "ResNet50", small="inference/b1", medium="inference/b8 train/b1", size=64),
    _keras(
        "resnet101", "ResNet", "ResNet101", medium="inference/b1", large="train/b1",
        published=Published(44_549_160, 7.6e9, _HE),
    ),
    _keras(
        "resnet152", "ResNet", "ResNet152", medium="inference/b1", large="train/b1",
        published=Published(60_192_808, 11.3e9, _HE),
    ),
    _keras("resnet50v2", "ResNet", "ResNet50V2", medium="inference/b1 train/b1"),
    _keras(
        "efficientnetb0", "EfficientNet", "EfficientNetB0", medium="inference/b1 inference/b8 train/b1 train/b8",
        published=Published(5_288_548, 0.386e9, _TORCHVISION),
    ),
    _keras("efficientnetb0-64", "EfficientNet", "EfficientNetB0", small="inference/b1", medium="train/b1", size=64),
    _keras(
        "efficientnetb1", "EfficientNet", "EfficientNetB1", medium="inference/b1", large="train/b1", size=240,
        published=Published(7_794_184, 0.687e9, _TORCHVISION),
    ),
    _keras(
        "efficientnetb3", "EfficientNet", "EfficientNetB3", medium="inference/b1", large="train/b1", size=300,
        published=Published(12_233_232, 1.827e9, _TORCHVISION),
    ),
    _keras(
        "efficientnetb7", "EfficientNet", "EfficientNetB7", medium="inference/b1", large="train/b1", size=600,
        published=Published(66_347_960, 37.746e9, _TORCHVISION),
    ),
    _keras("efficientnetv2s", "EfficientNet", "EfficientNetV2S", medium="inference/b1", large="train/b1"),
    _entry(
        "maskrcnn-tiny", "Mask R-CNN", "mask_rcnn", _MASKRCNN, medium="inference/b1 train/b1",
        size=128, channels=64, proposals=50, detections=10, samples=32,
    ),
    _entry(
        "maskrcnn-256", "Mask R-CNN", "mask_rcnn", _MASKRCNN, medium="inference/b1 train/b1",
        size=256, proposals=200, detections=20, samples=128,
    ),
    _entry(
        "maskrcnn", "Mask R-CNN", "mask_rcnn", _MASKRCNN, medium="inference/b1 train/b1",
        published=Published(44_401_393, 134.38e9, "torchvision, which has no box reach the masks", {"detections": 1}),
    ),
    _entry("maskrcnn-101", "Mask R-CNN", "mask_rcnn", _MASKRCNN, medium="inference/b1 train/b1", depth=101),
)  # fmt: skip

_MORE_IMAGES: tuple[Entry, ...] = (
    _keras(
        "vgg16", "VGG", "VGG16", medium="inference/b1 train/b1",
        published=Published(138_357_544, 15.47e9, _TORCHVISION),
    ),
    _keras("vgg16-64", "VGG", "VGG16", medium="inference/b1", size=64),
    _keras("inceptionv3", "Inception", "InceptionV3", medium="inference/b1", large="train/b1", size=299),
    _keras("inceptionresnetv2", "Inception", "InceptionResNetV2", medium="inference/b1", large="train/b1", size=299),
    _keras("mobilenet", "MobileNet", "MobileNet", medium="inference/b1 train/b1"),
    _keras("mobilenet-64", "MobileNet", "MobileNet", small="inference/b1", medium="train/b1", size=64),
    _keras(
        "mobilenetv2", "MobileNet", "MobileNetV2", small="inference/b1", medium="inference/b8 train/b1",
        published=Published(3_504_872, 0.301e9, _TORCHVISION),
    ),
    _keras("mobilenetv2-64", "MobileNet", "MobileNetV2", small="inference/b1 inference/b4", medium="train/b1", size=64),
    _keras(
        "mobilenetv3-small", "MobileNet", "MobileNetV3Small", small="inference/b1", medium="train/b1",
    ),
    _keras("mobilenetv3-large", "MobileNet", "MobileNetV3Large", small="inference/b1", medium="train/b1"),
    _keras(
        "densenet121", "DenseNet", "DenseNet121", medium="inference/b1", large="train/b1",
        published=Published(7_978_856, 2.834e9, _TORCHVISION),
    ),
    _keras("densenet121-64", "DenseNet", "DenseNet121", small="inference/b1", size=64),
    _keras("densenet201", "DenseNet", "DenseNet201", medium="inference/b1", large="train/b1"),
    _keras("convnext-tiny", "ConvNeXt", "ConvNeXtTiny", medium="inference/b1 train/b1"),
    _keras("convnext-tiny-64", "ConvNeXt", "ConvNeXtTiny", small="inference/b1", size=64),
    _keras("xception", "Xception", "Xception", medium="inference/b1 train/b1", size=299),
    _keras("xception-96", "Xception", "Xception", small="inference/b1", size=96),
    _keras("nasnet-mobile", "NASNet", "NASNetMobile", medium="inference/b1", large="train/b1"),
    _entry(
        "retinanet-tiny", "RetinaNet", "retinanet", _RETINANET, medium="inference/b1 train/b1",
        size=128, channels=64, candidates=100, detections=20,
    ),
    _entry(
        "retinanet", "RetinaNet", "retinanet", _RETINANET, medium="inference/b1 train/b1",
        published=Published(34_014_999, 151.54e9, _TORCHVISION),
    ),
    _entry(
        "unet-tiny", "U-Net", "unet", _UNET, small="inference/b1 train/b1", size=64, channels=16,
    ),
    _entry("unet", "U-Net", "unet", _UNET, medium="inference/b1 train/b1", size=256),
    _entry(
        "unet3d-tiny", "U-Net", "unet", _UNET3D, small="inference/b1 train/b1",
        dims=3, size=16, channels=8, depth=3, inputs=3, classes=3,
    ),
    _entry(
        "unet3d", "U-Net", "unet", _UNET3D, medium="inference/b1 train/b1",
        dims=3, size=64, channels=32, depth=3, inputs=3, classes=3,
    ),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (*_IMAGES, *_TRANSFORMERS, *_MORE_IMAGES, *_SEQUENCES, *_OTHERS)
