"""Estimators and pipelines of scikit-learn given to ``concord.compile``."""

import builtins
import warnings

import numpy as np
import pytest

import concord
from support.frameworks import missing, needs

if missing("sklearn"):
    pytest.skip(missing("sklearn"), allow_module_level=True)

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC

pytestmark = needs("sklearn")

RNG = np.random.default_rng(2)
X = RNG.normal(size=(80, 6)) + 1
TARGET = X @ RNG.normal(size=(6, 2))
CLASSES = np.array(["a", "b", "c"])[np.digitize(TARGET[:, 0], np.quantile(TARGET[:, 0], [0.3, 0.6]))]
MLP = {"hidden_layer_sizes": (8,), "max_iter": 60, "random_state": 1}


def fitted(estimator, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, target)


@pytest.mark.parametrize(
    ("estimator", "target", "method"),
    [
        (MLPRegressor(**MLP), TARGET, "predict"),
        (MLPRegressor(**MLP), TARGET[:, 0], "predict"),
        (make_pipeline(StandardScaler(), MLPRegressor(**MLP)), TARGET, "predict"),
        (LinearRegression(), TARGET, "predict"),
        (make_pipeline(MinMaxScaler(), Ridge()), TARGET, "predict"),
        (MLPClassifier(**MLP), CLASSES, "predict_proba"),
        (make_pipeline(StandardScaler(), PCA(4), LogisticRegression()), CLASSES, "predict_proba"),
        (make_pipeline(StandardScaler(), LinearSVC()), CLASSES, "decision_function"),
        (PCA(3), None, "transform"),
        (KMeans(4, random_state=1), None, "transform"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_an_estimator_is_compiled(estimator, target, method):
    network = concord.compile(fitted(estimator, target), preset="ecp5-85f")
    want = getattr(estimator, method)(X)
    want, got = want.reshape(len(X), -1), network(X)
    assert got.shape == want.shape and network.inputs == {"X": (6,)}
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
    assert "scikit-learn" in network.source and "exported by skl2onnx" in network.source


def test_what_cannot_be_exported_is_said():
    with pytest.raises(ValueError, match=r"model must be fitted, not a MLPRegressor without features: call its fit"):
        concord.compile(MLPRegressor())
    with pytest.raises(ValueError, match=r"model must be fitted, not a Pipeline"):
        concord.compile(make_pipeline(StandardScaler(), MLPRegressor()))


class Doubled(TransformerMixin, BaseEstimator):
    """An estimator of one's own, which the converter does not know."""

    def fit(self, x, y=None):
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, x):
        return 2 * x


def test_an_estimator_without_a_converter_is_named():
    with pytest.raises(
        ValueError, match=r"Doubled cannot be exported by skl2onnx: .*; export the part that has"
    ) as caught:
        concord.compile(Doubled().fit(X))
    assert "\n" not in str(caught.value)


def test_without_the_converter(monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **named):
        if name.partition(".")[0] == "skl2onnx":
            raise ImportError(name)
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs the package skl2onnx: pip install 'concord-npu\[sklearn\]'"):
        concord.compile(LinearRegression())


class Booster:
    """As XGBoost has them: an estimator of scikit-learn by its base class alone."""


def test_an_estimator_of_another_package_says_what_it_is():
    booster = type("XGBClassifier", (Booster, LinearRegression), {"__module__": "xgboost.sklearn"})
    with pytest.raises(TypeError, match=r"not a model of XGBoost \(XGBClassifier\)"):
        concord.compile(booster())
